//! How columns are stored, by their types.

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use rockmill_core::scan::{Calendar, Number, NumberFormat, PackedDecimal, Prefix, StringGroups};
use sqlparser::ast::{
    self, BinaryLength, CharacterLength, ColumnDef, ColumnOption, CreateTable, ExactNumberInfo,
    TimezoneInfo,
};

use super::charset::{character_bytes, charset, charset_and_collation, charset_name};
use super::{UNPACK_INFO_LENGTH, refused};
use crate::form::Form;

/// How a column is stored.
pub(super) struct Stored {
    pub(super) data_type: DataType,
    pub(super) in_value: Form,
    pub(super) in_key: InKey,
}

/// How a column of the primary key is stored.
pub(super) enum InKey {
    /// Only in the key.
    Alone(Form),
    /// Only in the key, except for the number of its last spaces.
    Padded(StringGroups),
    /// In the value. These bytes of the key sort as it does.
    AndInValue(Form),
    Unsupported,
}

fn integer(bytes: u8, is_signed: bool, is_big_endian: bool) -> Form {
    let format = match (is_signed, is_big_endian) {
        (false, _) => NumberFormat::Unsigned,
        (true, false) => NumberFormat::Signed,
        // Those of keys.
        (true, true) => NumberFormat::SignedInverted,
    };
    Form::Number(Number {
        bytes,
        is_big_endian,
        format,
    })
}

pub(super) fn stored(
    column: &ColumnDef,
    table: &CreateTable,
    attribute: Option<&str>,
) -> Result<Stored, String> {
    use ast::DataType as Sql;
    if let Some(attribute) = attribute {
        let what = format!("with the attribute {attribute}, which is not supported");
        return Err(refused(column, &what));
    }
    let is_generated = |option: &ColumnOption| matches!(option, ColumnOption::Generated { .. });
    if column.options.iter().any(|of| is_generated(&of.option)) {
        return Err(refused(column, &"and is generated, which is not supported"));
    }
    let unsupported = || refused(column, &"which is not supported");
    let numbers = |bytes, is_signed, data_type| Stored {
        data_type,
        in_value: integer(bytes, is_signed, false),
        in_key: InKey::Alone(integer(bytes, is_signed, true)),
    };
    let float = |bytes, data_type| Stored {
        data_type,
        in_value: Form::Number(Number {
            bytes,
            is_big_endian: false,
            format: NumberFormat::Float,
        }),
        in_key: InKey::Unsupported,
    };
    Ok(match &column.data_type {
        Sql::TinyInt(_) => numbers(1, true, DataType::Int8),
        Sql::TinyIntUnsigned(_) => numbers(1, false, DataType::UInt8),
        Sql::SmallInt(_) => numbers(2, true, DataType::Int16),
        Sql::SmallIntUnsigned(_) => numbers(2, false, DataType::UInt16),
        Sql::MediumInt(_) => numbers(3, true, DataType::Int32),
        Sql::MediumIntUnsigned(_) => numbers(3, false, DataType::UInt32),
        Sql::Int(_) | Sql::Integer(_) => numbers(4, true, DataType::Int32),
        Sql::IntUnsigned(_) | Sql::IntegerUnsigned(_) => numbers(4, false, DataType::UInt32),
        Sql::BigInt(_) => numbers(8, true, DataType::Int64),
        Sql::BigIntUnsigned(_) => numbers(8, false, DataType::UInt64),
        Sql::Float(ExactNumberInfo::None | ExactNumberInfo::PrecisionAndScale(..)) => {
            float(4, DataType::Float32)
        }
        Sql::Double(_) => float(8, DataType::Float64),
        Sql::Decimal(digits) | Sql::DecimalUnsigned(digits) | Sql::Numeric(digits) => {
            let decimal = decimal(*digits).ok_or_else(unsupported)?;
            let scale = decimal.scale.cast_signed();
            Stored {
                data_type: DataType::Decimal128(decimal.precision, scale),
                in_value: Form::Decimal(decimal),
                in_key: InKey::Alone(Form::Decimal(decimal)),
            }
        }
        Sql::Date => {
            let time = |is_big_endian| Form::Time {
                number: Number {
                    bytes: 3,
                    is_big_endian,
                    format: NumberFormat::Unsigned,
                },
                calendar: Some(Calendar::Day),
                fraction: 0,
            };
            Stored {
                data_type: DataType::Date32,
                in_value: time(false),
                in_key: InKey::Alone(time(true)),
            }
        }
        Sql::Datetime(digits) => {
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
            time_of_day(5, Some(Calendar::Second), *digits, data_type).ok_or_else(unsupported)?
        }
        Sql::Timestamp(digits, TimezoneInfo::None) => {
            let utc = Some(Arc::from("+00:00"));
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, utc);
            time_of_day(4, None, *digits, data_type).ok_or_else(unsupported)?
        }
        Sql::Char(_) | Sql::Character(_) => {
            let (charset, characters) = (charset(column, table)?, length(&column.data_type));
            let bytes = characters * charset.bytes;
            let in_key = match charset.collation.as_str() {
                "latin1_bin" => InKey::Alone(Form::Filled(bytes)),
                "utf8mb4_general_ci" | "utf8mb3_general_ci" => {
                    InKey::AndInValue(Form::Skip(2 * characters))
                }
                "utf8mb4_bin" => InKey::AndInValue(Form::Skip(3 * characters)),
                _ => InKey::Unsupported,
            };
            Stored {
                data_type: DataType::Utf8,
                in_value: Form::Filled(bytes),
                in_key,
            }
        }
        Sql::Varchar(_) => {
            let charset = charset(column, table)?;
            let bytes = length(&column.data_type) * charset.bytes;
            let in_key = match charset.collation.as_str() {
                "latin1_bin" => InKey::Padded(StringGroups::Padded { bytes: 8 }),
                "utf8mb4_general_ci" | "utf8mb4_unicode_ci" | "utf8mb3_general_ci"
                | "utf8mb3_unicode_ci" => {
                    InKey::AndInValue(Form::String(StringGroups::Padded { bytes: 8 }))
                }
                "utf8mb4_bin" => InKey::AndInValue(Form::String(StringGroups::Padded { bytes: 9 })),
                _ => InKey::Unsupported,
            };
            Stored {
                data_type: DataType::Utf8,
                in_value: prefixed(length_bytes(bytes)),
                in_key,
            }
        }
        Sql::Binary(length) => {
            let bytes = length.unwrap_or(1);
            let bytes = u32::try_from(bytes).map_err(|_| unsupported())?;
            Stored {
                data_type: DataType::Binary,
                in_value: Form::Bytes(bytes),
                in_key: InKey::Alone(Form::Bytes(bytes)),
            }
        }
        Sql::Varbinary(_) => Stored {
            data_type: DataType::Binary,
            in_value: prefixed(length_bytes(length(&column.data_type))),
            in_key: InKey::Alone(Form::String(StringGroups::Counted)),
        },
        long => Stored {
            in_value: prefixed(long_length_bytes(long).ok_or_else(unsupported)?),
            data_type: match long {
                Sql::TinyText | Sql::Text | Sql::MediumText | Sql::LongText => {
                    charset(column, table)?;
                    DataType::Utf8
                }
                _ => DataType::Binary,
            },
            in_key: InKey::Unsupported,
        },
    })
}

/// Bytes behind their length, which takes `bytes` bytes.
fn prefixed(bytes: u8) -> Form {
    Form::Prefixed(Prefix::Number(Number {
        bytes,
        is_big_endian: false,
        format: NumberFormat::Unsigned,
    }))
}

/// Bytes of the length of a BLOB or a TEXT.
fn long_length_bytes(data_type: &ast::DataType) -> Option<u8> {
    use ast::DataType as Sql;
    match data_type {
        Sql::TinyBlob | Sql::TinyText => Some(1),
        Sql::Blob(_) | Sql::Text => Some(2),
        Sql::MediumBlob | Sql::MediumText => Some(3),
        Sql::LongBlob | Sql::LongText => Some(4),
        _ => None,
    }
}

/// The form in which a value's unsupported column is skipped; `None` if it is not known.
pub(super) fn unsupported_form(
    column: &ColumnDef,
    table: &CreateTable,
    attribute: Option<&str>,
) -> Option<Form> {
    use ast::DataType as Sql;
    // A compressed column has one byte more.
    let more = match attribute {
        None => 0,
        Some(text) if text.eq_ignore_ascii_case("COMPRESSED") => 1,
        Some(_) => return None,
    };
    let length = || length(&column.data_type);
    let character_bytes = || {
        let (name, collation) = charset_and_collation(column, table);
        let (bytes, _) = character_bytes(&charset_name(name, collation.as_deref())?)?;
        Some(bytes)
    };
    let fraction = |digits: Option<u64>| u32::try_from(digits.unwrap_or(0).div_ceil(2)).ok();
    Some(match &column.data_type {
        Sql::Enum(members, _) => Form::Skip(if members.len() < 1 << 8 { 1 } else { 2 }),
        Sql::Set(members) => Form::Skip(match members.len().div_ceil(8) as u32 {
            bytes @ 0..=4 => bytes,
            _ => 8,
        }),
        Sql::Bit(bits) => Form::Skip(u32::try_from(bits.unwrap_or(1).div_ceil(8)).ok()?),
        Sql::Time(digits, _) => Form::Skip(3 + fraction(*digits)?),
        Sql::Uuid => Form::Skip(16),
        Sql::Custom(name, _) => match name.to_string().to_ascii_lowercase().as_str() {
            "year" => Form::Skip(1),
            "inet4" => Form::Skip(4),
            "inet6" => Form::Skip(16),
            _ => return None,
        },
        Sql::Decimal(digits) | Sql::DecimalUnsigned(digits) | Sql::Numeric(digits) => {
            Form::Skip(packed(*digits, MAX_DIGITS)?.bytes())
        }
        Sql::Char(_) | Sql::Character(_) => Form::Skip(length() * character_bytes()?),
        Sql::Varchar(_) => prefixed(length_bytes(length() * character_bytes()? + more)),
        Sql::Varbinary(_) => prefixed(length_bytes(length() + more)),
        long => prefixed(long_length_bytes(long)?),
    })
}

/// Bytes of the length of a VARCHAR or VARBINARY that has at most `bytes` bytes.
fn length_bytes(bytes: u32) -> u8 {
    if bytes < 1 << 8 { 1 } else { 2 }
}

/// Maximum number of characters or bytes.
fn length(data_type: &ast::DataType) -> u32 {
    use ast::DataType as Sql;
    let length = match data_type {
        Sql::Char(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Character(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Varchar(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Varbinary(Some(BinaryLength::IntegerLength { length })) => *length,
        _ => 1,
    };
    /// For VARBINARY; the limit of other types is lower.
    const MAX: u32 = 65_535;
    u32::try_from(length).unwrap_or(MAX).min(MAX)
}

/// The form of the number of a key column's last spaces in the unpack info.
pub(super) fn spaces(column: &ColumnDef) -> Number {
    /// A larger size is stored in two bytes.
    const MAX_BYTES: u32 = 247;
    let bytes = if length(&column.data_type) > MAX_BYTES {
        2
    } else {
        1
    };
    Number {
        bytes,
        ..UNPACK_INFO_LENGTH
    }
}

/// Maximum digits of a decimal in MySQL.
const MAX_DIGITS: u8 = 65;

/// A decimal of the given digits, as scans store it.
fn decimal(digits: ExactNumberInfo) -> Option<PackedDecimal> {
    const MAX_PRECISION: u8 = 38;
    packed(digits, MAX_PRECISION)
}

/// A decimal with at most `most` digits.
fn packed(digits: ExactNumberInfo, most: u8) -> Option<PackedDecimal> {
    const DEFAULT_PRECISION: u64 = 10;
    let (precision, scale) = match digits {
        ExactNumberInfo::None => (DEFAULT_PRECISION, 0),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
    let fits = (1..=most).contains(&precision) && scale <= precision;
    fits.then_some(PackedDecimal { precision, scale })
}

/// A time whose seconds are an integer of `bytes` bytes, with some decimal digits behind the point.
fn time_of_day(
    bytes: u8,
    calendar: Option<Calendar>,
    digits: Option<u64>,
    data_type: DataType,
) -> Option<Stored> {
    const MAX_DIGITS: u8 = 6;
    let digits = u8::try_from(digits.unwrap_or(0)).ok()?;
    let time = || Form::Time {
        number: Number {
            bytes,
            is_big_endian: true,
            format: match calendar {
                Some(_) => NumberFormat::SignedInverted,
                None => NumberFormat::Unsigned,
            },
        },
        calendar,
        fraction: digits.div_ceil(2),
    };
    (digits <= MAX_DIGITS).then(|| Stored {
        data_type,
        in_value: time(),
        in_key: InKey::Alone(time()),
    })
}
