//! One table of all instructions: their operands with kinds, and the kinds of their results.

use std::array;

use super::{Instruction, Register, ValueKind};

/// A kind that an instruction takes or returns.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Is(ValueKind),
    /// The kind of the operand at this position.
    Operand(usize),
}

const BOOLEAN: Kind = Kind::Is(ValueKind::Boolean);
const INTEGER: Kind = Kind::Is(ValueKind::Integer);
const BYTES: Kind = Kind::Is(ValueKind::Bytes);
const FIRST: Kind = Kind::Operand(0);
const SECOND: Kind = Kind::Operand(1);

/// Each row is an instruction, its operands with their kinds, and the kind of its result. An optional operand is the
/// last one.
macro_rules! instructions {
    ($($name:ident $fields:tt [$($operand:ident: $takes:expr),*] -> $returns:expr,)*) => {
        #[allow(unused_variables, reason = "each method uses a part of a row")]
        impl Instruction {
            /// The operands.
            pub fn operands(&self) -> [Option<Register>; 3] {
                let operands: [Option<&Register>; 3] = match self {
                    $(Self::$name $fields => padded([$(Option::from($operand)),*]),)*
                };
                operands.map(Option::<&Register>::copied)
            }

            /// The same instruction with other operands.
            #[must_use]
            pub fn with_operands(&self, rename: impl Fn(Register) -> Register) -> Self {
                let mut renamed = self.clone();
                let operands: [Option<&mut Register>; 3] = match &mut renamed {
                    $(Self::$name $fields => padded([$(Option::from($operand)),*]),)*
                };
                for operand in operands.into_iter().flatten() {
                    *operand = rename(*operand);
                }
                renamed
            }

            /// The kinds of the operands, and of the result.
            pub(super) fn kinds(&self) -> ([Option<Kind>; 3], Kind) {
                match self {
                    $(Self::$name $fields => (padded([$(Some($takes)),*]), $returns),)*
                }
            }
        }
    };
}

fn padded<T, const N: usize>(operands: [Option<T>; N]) -> [Option<T>; 3] {
    let mut operands = operands.into_iter();
    array::from_fn(|_| operands.next().flatten())
}

instructions! {
    Key {} [] -> BYTES,
    Value {} [] -> BYTES,
    Constant(literal) [] -> Kind::Is(literal.kind()),
    Length(of) [of: BYTES] -> INTEGER,
    Load { from, at, .. } [from: BYTES, at: INTEGER] -> INTEGER,
    Slice { from, at, length } [from: BYTES, at: INTEGER, length: INTEGER] -> BYTES,
    Prefixed { from, at, .. } [from: BYTES, at: INTEGER] -> BYTES,
    AfterPrefixed { from, at, .. } [from: BYTES, at: INTEGER] -> INTEGER,
    Bit { from, at } [from: BYTES, at: INTEGER] -> BOOLEAN,
    Decimal { from, at, .. } [from: BYTES, at: INTEGER] -> INTEGER,
    Date { of, .. } [of: INTEGER] -> INTEGER,
    String { from, at, spaces, .. } [from: BYTES, at: INTEGER, spaces: INTEGER] -> BYTES,
    StringSize { from, at, .. } [from: BYTES, at: INTEGER] -> INTEGER,
    TrimEnd(of) [of: BYTES] -> BYTES,
    Text(of) [of: BYTES] -> BYTES,
    Latin1(of) [of: BYTES] -> BYTES,
    Json { from, takes } [from: BYTES] -> Kind::Is(takes.kind()),
    Select { when, then, otherwise } [when: BOOLEAN, then: SECOND, otherwise: SECOND] -> SECOND,
    Compare { left, right, .. } [left: FIRST, right: FIRST] -> BOOLEAN,
    And(left, right) [left: BOOLEAN, right: BOOLEAN] -> BOOLEAN,
    Or(left, right) [left: BOOLEAN, right: BOOLEAN] -> BOOLEAN,
    Not(of) [of: BOOLEAN] -> BOOLEAN,
    IsNull(of) [of: FIRST] -> BOOLEAN,
    Like { of, .. } [of: BYTES] -> BOOLEAN,
    OneOf { of, .. } [of: FIRST] -> BOOLEAN,
    Arithmetic { left, right, .. } [left: INTEGER, right: INTEGER] -> INTEGER,
}
