//! Forms of the bytes of a part, and the instructions that find and decode them.

use arrow_schema::{DataType, Field};
use rockmill_core::scan::{
    Calendar, Instruction, Json, JsonType, Literal, Number, NumberFormat, Operation, PackedDecimal,
    Prefix, Register, StringGroups, ValueKind,
};

use crate::preset::END;
use crate::types::{column_type, is_bytes};
use crate::{Push, arithmetic, mysql};

/// Form of the bytes of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Number(Number),
    Bytes(u32),
    /// Bytes behind their length.
    Prefixed(Prefix),
    /// All bytes except some at the end, which belong to the following parts.
    Rest {
        behind: u32,
    },
    /// Bits of the nullable columns.
    Nulls(u32),
    Skip(u32),
    Literal(Vec<u8>),
    Decimal(PackedDecimal),
    /// A time as MySQL stores it: an integer, and then a fraction of a second.
    Time {
        number: Number,
        /// `None` if the integer counts seconds since 1970; 0 is then not a time.
        calendar: Option<Calendar>,
        /// Bytes of the fraction: each has two decimal digits.
        fraction: u8,
    },
    /// A number of bytes, with spaces behind a shorter text.
    Filled(u32),
    /// A string that sorts as its bytes do.
    String(StringGroups),
    /// A string with spaces at its end. The unpack info has the number of spaces that belong to it.
    Padded {
        groups: StringGroups,
        /// Position and form of that number in the unpack info.
        spaces_at: u32,
        spaces: Number,
    },
    /// The bytes that MyRocks needs besides the key to restore the key's columns, behind a tag and their length, tag
    /// included.
    UnpackInfo,
    /// The version of a row.
    RowVersion,
    /// Bytes of a row, which begin where those of the column before end.
    Variable {
        /// Offset of the end of the column. The end of the column before is in front of it.
        end_at: u32,
        is_first: bool,
        /// Offset from which ends are counted.
        begin: u32,
    },
    /// A member of the value, which is a JSON object. It has no place of its own.
    Member {
        name: String,
        of_type: JsonType,
        is_nullable: bool,
    },
}

/// Position of a part: a number of bytes behind a computed position, and then behind some bytes with their lengths.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    computed: Option<Register>,
    bytes: i128,
    prefixed: Option<(Prefix, u16)>,
}

impl Cursor {
    /// At the first byte.
    pub const START: Self = Self {
        computed: None,
        bytes: 0,
        prefixed: None,
    };

    /// At a position that an instruction computes.
    pub fn computed(register: Register) -> Self {
        Self {
            computed: Some(register),
            ..Self::START
        }
    }

    fn is_start(self) -> bool {
        self.computed.is_none() && self.bytes == 0 && self.prefixed.is_none()
    }

    /// The position within the bytes of `from`.
    pub fn register(self, from: Register, push: Push<'_>) -> Register {
        let at = match self.computed {
            Some(computed) if self.bytes == 0 => computed,
            Some(computed) => {
                let bytes = push(Instruction::Constant(Literal::Integer(self.bytes)));
                push(arithmetic(Operation::Add, computed, bytes))
            }
            None => push(Instruction::Constant(Literal::Integer(self.bytes))),
        };
        match self.prefixed {
            None => at,
            Some((prefix, count)) => push(Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            }),
        }
    }

    /// The position of a bit behind this one, in bits.
    pub fn bit(self, bit: u32, from: Register, push: Push<'_>) -> Register {
        let bit = i128::from(bit);
        let constant = |integer| Instruction::Constant(Literal::Integer(integer));
        match (self.computed, self.prefixed) {
            (None, None) => push(constant(bit + 8 * self.bytes)),
            _ => {
                let (at, eight) = (self.register(from, push), push(constant(8)));
                let first = push(arithmetic(Operation::Multiply, at, eight));
                let bit = push(constant(bit));
                push(arithmetic(Operation::Add, first, bit))
            }
        }
    }

    /// The position some bytes later.
    pub fn plus(self, bytes: u32, from: Register, push: Push<'_>) -> Self {
        let before = match self.prefixed {
            None => self,
            Some(_) => Self::computed(self.register(from, push)),
        };
        Self {
            bytes: before.bytes + i128::from(bytes),
            ..before
        }
    }
}

impl Form {
    /// Whether bytes of the right size may have no value, which is an error.
    pub fn may_not_decode(&self) -> bool {
        matches!(
            self,
            Self::Decimal(_)
                | Self::String(_)
                | Self::Padded { .. }
                | Self::Variable { .. }
                | Self::Member { .. }
        )
    }

    /// Size of a part that has the same size in each row.
    pub fn fixed_bytes(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(number.bytes.into()),
            Self::Bytes(bytes) | Self::Nulls(bytes) | Self::Skip(bytes) => Some(*bytes),
            Self::Literal(bytes) => u32::try_from(bytes.len()).ok(),
            _ => None,
        }
    }

    pub fn null_bits(&self) -> Option<usize> {
        match self {
            Self::Nulls(bytes) => Some(*bytes as usize * 8),
            _ => None,
        }
    }

    /// Begin of the next part.
    pub fn after(&self, from: Register, at: Cursor, push: Push<'_>) -> Cursor {
        match self {
            Self::Number(number) => at.plus(u32::from(number.bytes), from, push),
            Self::Bytes(bytes) | Self::Nulls(bytes) | Self::Skip(bytes) | Self::Filled(bytes) => {
                at.plus(*bytes, from, push)
            }
            Self::Literal(bytes) => at.plus(bytes.len() as u32, from, push),
            Self::Decimal(decimal) => at.plus(decimal.bytes(), from, push),
            Self::Time {
                number, fraction, ..
            } => at.plus(u32::from(number.bytes + fraction), from, push),
            Self::String(groups) | Self::Padded { groups, .. } => {
                let (at, groups) = (at.register(from, push), *groups);
                let size = push(Instruction::StringSize { from, at, groups });
                Cursor::computed(push(arithmetic(Operation::Add, at, size)))
            }
            Self::UnpackInfo => {
                let number = mysql::UNPACK_INFO_LENGTH;
                let place = at.plus(mysql::UNPACK_INFO_TAG_BYTES, from, push);
                let place = place.register(from, push);
                let length = push(Instruction::Load {
                    from,
                    at: place,
                    number,
                });
                let at = at.register(from, push);
                Cursor::computed(push(arithmetic(Operation::Add, at, length)))
            }
            Self::RowVersion => at.plus(1, from, push),
            Self::Variable { end_at, begin, .. } => {
                let end = end_of_variable(*end_at, from, push);
                let begin = push(Instruction::Constant(Literal::Integer(i128::from(*begin))));
                Cursor::computed(push(arithmetic(Operation::Add, end, begin)))
            }
            // Nothing follows.
            Self::Rest { behind: 0 } | Self::Member { .. } => at,
            Self::Rest { behind } => Cursor::computed(before_end(*behind, from, push)),
            Self::Prefixed(prefix) => match at.prefixed {
                Some((before, count)) if before == *prefix && count < u16::MAX => Cursor {
                    prefixed: Some((before, count + 1)),
                    ..at
                },
                _ => Cursor {
                    prefixed: Some((*prefix, 1)),
                    ..at.plus(0, from, push)
                },
            },
        }
    }

    pub fn value(&self, from: Register, at: Cursor, push: Push<'_>) -> Register {
        let slice = |at: Register, length: Register| Instruction::Slice { from, at, length };
        match self {
            Self::Number(number) => {
                let (at, number) = (at.register(from, push), *number);
                push(Instruction::Load { from, at, number })
            }
            Self::Bytes(bytes) | Self::Nulls(bytes) | Self::Skip(bytes) => {
                let at = at.register(from, push);
                let length = push(Instruction::Constant(Literal::Integer(i128::from(*bytes))));
                push(slice(at, length))
            }
            Self::Literal(bytes) => push(Instruction::Constant(Literal::Bytes(bytes.clone()))),
            Self::Decimal(decimal) => {
                let (at, decimal) = (at.register(from, push), *decimal);
                push(Instruction::Decimal { from, at, decimal })
            }
            Self::Time {
                number,
                calendar,
                fraction,
            } => mysql::time(*number, *calendar, *fraction, from, at, push),
            Self::Filled(bytes) => {
                let filled = Self::Bytes(*bytes).value(from, at, push);
                push(Instruction::TrimEnd(filled))
            }
            // `Layout::column` knows the spaces of a padded one.
            Self::String(groups) | Self::Padded { groups, .. } => {
                let (at, groups) = (at.register(from, push), *groups);
                push(Instruction::String {
                    from,
                    at,
                    groups,
                    spaces: None,
                })
            }
            Self::UnpackInfo => push(Instruction::Constant(Literal::Null(ValueKind::Bytes))),
            Self::RowVersion => Self::Bytes(1).value(from, at, push),
            Self::Variable {
                end_at,
                is_first,
                begin,
            } => {
                let end = end_of_variable(*end_at, from, push);
                let begin = push(Instruction::Constant(Literal::Integer(i128::from(*begin))));
                if *is_first {
                    return push(slice(begin, end));
                }
                let end_before = end_of_variable(*end_at - u32::from(END.bytes), from, push);
                let at = push(arithmetic(Operation::Add, begin, end_before));
                let length = push(arithmetic(Operation::Subtract, end, end_before));
                push(slice(at, length))
            }
            Self::Member { name, of_type, .. } => {
                let takes = Json::Member(name.clone(), *of_type);
                push(Instruction::Json { from, takes })
            }
            Self::Prefixed(prefix) => {
                let (at, prefix) = (at.register(from, push), *prefix);
                push(Instruction::Prefixed { from, at, prefix })
            }
            Self::Rest { behind: 0 } if at.is_start() => from,
            Self::Rest { behind } => {
                let at = at.register(from, push);
                let end = before_end(*behind, from, push);
                let length = push(arithmetic(Operation::Subtract, end, at));
                push(slice(at, length))
            }
        }
    }

    /// Whether a column can have this form.
    pub fn fits(&self, field: &Field) -> Result<(), String> {
        let data_type = field.data_type();
        let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
        let fits = match self {
            Self::Number(number) => match (number.format, data_type) {
                (NumberFormat::Float, DataType::Float32) => number.bytes == 4,
                (NumberFormat::Float, DataType::Float64) => number.bytes == 8,
                (NumberFormat::Float, _) => false,
                _ => !is_float && !is_bytes(data_type) && holds(data_type, *number),
            },
            Self::Bytes(_) | Self::Prefixed(_) | Self::Rest { .. } | Self::String(_) => {
                is_bytes(data_type) && column_type(data_type).is_some()
            }
            // Their layouts were made for the type.
            Self::Variable { .. } | Self::Member { .. } => column_type(data_type).is_some(),
            // Texts of layouts have no names for these forms.
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(format!(
                "column {} of type {data_type} does not fit its part of the layout",
                field.name()
            )),
        }
    }
}

/// The position `behind` bytes before the end; negative if there are fewer bytes.
fn before_end(behind: u32, from: Register, push: Push<'_>) -> Register {
    let all = push(Instruction::Length(from));
    match behind {
        0 => all,
        behind => {
            let behind = push(Instruction::Constant(Literal::Integer(i128::from(behind))));
            push(arithmetic(Operation::Subtract, all, behind))
        }
    }
}

/// The end of a variable column of a row.
fn end_of_variable(at: u32, from: Register, push: Push<'_>) -> Register {
    let at = push(Instruction::Constant(Literal::Integer(i128::from(at))));
    let number = END;
    push(Instruction::Load { from, at, number })
}

/// The smallest positive number of this form with more digits than the type has, which is a decimal. `None` if there is none.
pub fn decimal_limit(data_type: &DataType, number: Number) -> Option<i128> {
    let &DataType::Decimal128(precision, _) = data_type else {
        return None;
    };
    let limit = 10i128.checked_pow(precision.into())?;
    let bits = 8 * u32::from(number.bytes) - u32::from(number.format != NumberFormat::Unsigned);
    // The form of the value -2^bits is there too.
    let largest = 1u128.checked_shl(bits).unwrap_or(u128::MAX);
    (largest >= limit.unsigned_abs()).then_some(limit)
}

/// Whether each number of this form is a value of the type. [`decimal_limit`] tells about the digits of decimals.
fn holds(data_type: &DataType, number: Number) -> bool {
    let is_signed = number.format != NumberFormat::Unsigned;
    let (bytes, signed) = match data_type {
        DataType::Int8 => (1, true),
        DataType::Int16 => (2, true),
        DataType::Int32 | DataType::Date32 => (4, true),
        DataType::Int64 | DataType::Timestamp(..) => (8, true),
        DataType::UInt8 => (1, false),
        DataType::UInt16 => (2, false),
        DataType::UInt32 => (4, false),
        DataType::UInt64 => (8, false),
        DataType::Decimal128(..) => return true,
        _ => return false,
    };
    match (is_signed, signed) {
        (true, true) | (false, false) => number.bytes <= bytes,
        (false, true) => number.bytes < bytes,
        (true, false) => false,
    }
}
