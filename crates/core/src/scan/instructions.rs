//! One table of all instructions: their operands and results with kinds, and their codes in kernels.

use std::array;

use serde::{Deserialize, Serialize};

use super::codes::*;
use super::{
    Calendar, Comparison, IntegerRange, Json, Literal, Number, Operation, PackedDecimal, Pattern,
    Prefix, Register, StringGroups, ValueKind,
};

/// What kernels do for an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A step with this code of `kernels/scan/program.hpp`.
    Step(u32),
    /// Nothing: its value is in the program.
    Constant,
    /// Nothing: the CPU runs the plan. The reason is a clause.
    LeftToCpu(&'static str),
}

/// A kind that an instruction takes or returns.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Is(ValueKind),
    /// Bytes that kernels read only if they are contiguous in the row.
    Contiguous,
    /// The kind of the operand at this position.
    Operand(usize),
}

/// What the table says about an instruction.
#[derive(Debug)]
pub struct Declared {
    pub operands: [Option<(Register, Kind)>; 3],
    /// The kind of the result.
    pub returns: Kind,
    pub kernel: Kernel,
}

const BOOLEAN: Kind = Kind::Is(ValueKind::Boolean);
const INTEGER: Kind = Kind::Is(ValueKind::Integer);
const BYTES: Kind = Kind::Is(ValueKind::Bytes);
const CONTIGUOUS: Kind = Kind::Contiguous;
const FIRST: Kind = Kind::Operand(0);
const SECOND: Kind = Kind::Operand(1);

/// Each row is a variant. A field with a kind is an operand; an optional operand is the last one. The kind of the result
/// and what kernels do follow the arrow.
macro_rules! instructions {
    ($(
        $(#[$docs:meta])*
        $name:ident
        $(($($value:ident: $value_type:ty $(= $value_kind:expr)?),*))?
        $({$($(#[$field_docs:meta])* $field:ident: $field_type:ty $(= $field_kind:expr)?,)*})?
        -> $returns:expr, $kernel:expr;
    )*) => {
        /// Computes one value. The result is null if an operand is null, unless documented otherwise.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Instruction {
            $(
                $(#[$docs])*
                $name $(($($value_type),*))? $({$($(#[$field_docs])* $field: $field_type,)*})?,
            )*
        }

        #[allow(unused_variables, reason = "each function uses a part of a row")]
        impl Instruction {
            pub(super) fn declared(&self) -> Declared {
                match self {
                    $(Self::$name $(($($value),*))? $({$($field),*})? => Declared {
                        operands: padded([
                            $($($(operand(*$value, $value_kind),)?)*)?
                            $($($(operand(*$field, $field_kind),)?)*)?
                        ]),
                        returns: $returns,
                        kernel: $kernel,
                    },)*
                }
            }

            /// The same instruction with other operands.
            #[must_use]
            pub fn with_operands(&self, rename: impl Fn(Register) -> Register) -> Self {
                let mut renamed = self.clone();
                match &mut renamed {
                    $(Self::$name $(($($value),*))? $({$($field),*})? => {
                        $($($(replace($value, $value_kind, &rename);)?)*)?
                        $($($(replace($field, $field_kind, &rename);)?)*)?
                    })*
                }
                renamed
            }
        }
    };
}

fn operand(field: impl Into<Option<Register>>, kind: Kind) -> Option<(Register, Kind)> {
    field.into().map(|register| (register, kind))
}

fn padded<T, const N: usize>(operands: [Option<T>; N]) -> [Option<T>; 3] {
    let mut operands = operands.into_iter();
    array::from_fn(|_| operands.next().flatten())
}

/// A field has a kind if it is an operand.
fn replace<'a>(
    field: impl Into<Option<&'a mut Register>>,
    _: Kind,
    rename: impl Fn(Register) -> Register,
) {
    if let Some(register) = field.into() {
        *register = rename(*register);
    }
}

impl Instruction {
    /// The operands.
    pub fn operands(&self) -> [Option<Register>; 3] {
        let operands = self.declared().operands;
        operands.map(|operand| operand.map(|(register, _)| register))
    }

    /// What kernels do for it.
    pub fn kernel(&self) -> Kernel {
        self.declared().kernel
    }
}

instructions! {
    /// The row's user key.
    Key -> BYTES, Kernel::Step(SCAN_KEY);
    /// The row's value.
    Value -> BYTES, Kernel::Step(SCAN_VALUE);
    /// A constant.
    Constant(literal: Literal) -> Kind::Is(literal.kind()), Kernel::Constant;
    /// Number of bytes.
    Length(of: Register = BYTES) -> INTEGER, Kernel::Step(SCAN_LENGTH);
    /// The number stored at an offset in bytes; null if the bytes end before it, or if the offset is negative.
    Load {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the number.
        at: Register = INTEGER,
        /// How it is stored.
        number: Number,
    } -> INTEGER, Kernel::Step(SCAN_LOAD);
    /// Some of the bytes; null if the bytes end before them, or if offset or length are negative.
    Slice {
        /// The bytes.
        from: Register = BYTES,
        /// Offset of the first byte.
        at: Register = INTEGER,
        /// Number of bytes.
        length: Register = INTEGER,
    } -> BYTES, Kernel::Step(SCAN_SLICE);
    /// The bytes behind the length that is stored at an offset; null if the bytes end before them, if the offset is
    /// negative, or if there is no length.
    Prefixed {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the length.
        at: Register = INTEGER,
        /// How the length is stored.
        prefix: Prefix,
    } -> BYTES, Kernel::Step(SCAN_PREFIXED);
    /// The offset behind several contiguous [`Instruction::Prefixed`]; null if one of them is.
    AfterPrefixed {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the first length.
        at: Register = INTEGER,
        /// How the lengths are stored.
        prefix: Prefix,
        /// Number of strings.
        count: u16,
    } -> INTEGER, Kernel::Step(SCAN_AFTER_PREFIXED);
    /// Whether a bit is set, counted from the lowest of the first byte; null if the bytes end before it, or if the
    /// position is negative.
    Bit {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Position of the bit.
        at: Register = INTEGER,
    } -> BOOLEAN, Kernel::Step(SCAN_BIT);
    /// The decimal stored at an offset in bytes, without its point; null if the bytes end before it, or if they are not
    /// such a decimal.
    Decimal {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the decimal.
        at: Register = INTEGER,
        /// How it is stored.
        decimal: PackedDecimal,
    } -> INTEGER, Kernel::Step(SCAN_DECIMAL);
    /// The date that an integer encodes, as a count of days or seconds; null if it encodes none.
    Date {
        /// The integer.
        of: Register = INTEGER,
        /// How it encodes a date.
        calendar: Calendar,
    } -> INTEGER, Kernel::Step(SCAN_DATE);
    /// The string that is stored in groups at an offset in bytes; null if the bytes are not such a string or end before
    /// it.
    String {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the first group.
        at: Register = INTEGER,
        /// How it is stored.
        groups: StringGroups,
        /// For a padded string: [`StringGroups::SPACES_OFFSET`] plus the number of spaces to add to those of its last
        /// group. The value is below the offset if spaces have to be removed.
        spaces: Option<Register> = INTEGER,
    } -> BYTES, Kernel::Step(SCAN_STRING);
    /// Bytes that an [`Instruction::String`] takes; null where the string is null.
    StringSize {
        /// The bytes.
        from: Register = CONTIGUOUS,
        /// Offset of the first byte of the first group.
        at: Register = INTEGER,
        /// How it is stored.
        groups: StringGroups,
    } -> INTEGER, Kernel::Step(SCAN_STRING_SIZE);
    /// Bytes without the spaces at their end.
    TrimEnd(of: Register = BYTES) -> BYTES, Kernel::Step(SCAN_TRIM_END);
    /// The bytes; null if they are not UTF-8.
    Text(of: Register = BYTES) -> BYTES, Kernel::Step(SCAN_TEXT);
    /// The bytes, which are text of MySQL's character set latin1, as UTF-8.
    Latin1(of: Register = BYTES) -> BYTES, Kernel::LeftToCpu("the CPU decodes latin1");
    /// A part of JSON.
    Json {
        /// The bytes of the JSON.
        from: Register = BYTES,
        /// The part to extract.
        takes: Json,
    } -> Kind::Is(takes.kind()), Kernel::LeftToCpu("the CPU parses JSON");
    /// Chooses between two values of one kind by a condition.
    Select {
        /// The condition; a null is not true.
        when: Register = BOOLEAN,
        /// The value where it is true.
        then: Register = SECOND,
        /// The value elsewhere.
        otherwise: Register = SECOND,
    } -> SECOND, Kernel::Step(SCAN_SELECT);
    /// Compares two values of one kind: integers by value, bytes as RocksDB's bytewise comparator, false before true.
    Compare {
        /// The comparison.
        comparison: Comparison,
        /// Its left side.
        left: Register = FIRST,
        /// Its right side.
        right: Register = FIRST,
    } -> BOOLEAN, Kernel::Step(SCAN_COMPARE);
    /// Whether both are true, in three-valued logic: false if one is false, else null if one is null.
    And(left: Register = BOOLEAN, right: Register = BOOLEAN) -> BOOLEAN, Kernel::Step(SCAN_AND);
    /// Whether one is true, in three-valued logic: true if one is true, else null if one is null.
    Or(left: Register = BOOLEAN, right: Register = BOOLEAN) -> BOOLEAN, Kernel::Step(SCAN_OR);
    /// Whether it is false.
    Not(of: Register = BOOLEAN) -> BOOLEAN, Kernel::Step(SCAN_NOT);
    /// Whether it is null. Never null.
    IsNull(of: Register = FIRST) -> BOOLEAN, Kernel::Step(SCAN_IS_NULL);
    /// Whether bytes match a pattern.
    Like {
        /// The bytes.
        of: Register = BYTES,
        /// The pattern.
        pattern: Pattern,
    } -> BOOLEAN, Kernel::Step(SCAN_LIKE);
    /// Whether a value is in a list. All are of its kind, none is null.
    OneOf {
        /// The value.
        of: Register = FIRST,
        /// Ascending, without duplicates.
        values: Vec<Literal>,
    } -> BOOLEAN, Kernel::Step(SCAN_ONE_OF);
    /// Arithmetic of two integers.
    Arithmetic {
        /// The operation.
        operation: Operation,
        /// Its left side.
        left: Register = INTEGER,
        /// Its right side.
        right: Register = INTEGER,
        /// Treatment of a result that is out of range.
        range: IntegerRange,
    } -> INTEGER, Kernel::Step(match operation {
        Operation::Add => SCAN_ADD,
        Operation::Subtract => SCAN_SUBTRACT,
        Operation::Multiply => SCAN_MULTIPLY,
    });
}
