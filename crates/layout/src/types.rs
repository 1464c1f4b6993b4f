//! Arrow's types, and how a scan stores them.

use arrow_schema::DataType;
use rockmill_core::scan::{ColumnType, ValueKind};

/// How a scan stores a column of a type; `None` if it does not.
pub fn column_type(data_type: &DataType) -> Option<ColumnType> {
    let integer = |bytes| Some(ColumnType::Integer { bytes });
    match data_type {
        DataType::Boolean => Some(ColumnType::Boolean),
        DataType::Int8 | DataType::UInt8 => integer(1),
        DataType::Int16 | DataType::UInt16 => integer(2),
        DataType::Int32 | DataType::UInt32 | DataType::Date32 => integer(4),
        DataType::Int64 | DataType::UInt64 | DataType::Timestamp(..) => integer(8),
        DataType::Decimal128(..) => integer(16),
        DataType::Float32 => Some(ColumnType::Float { bytes: 4 }),
        DataType::Float64 => Some(ColumnType::Float { bytes: 8 }),
        DataType::Binary | DataType::Utf8 => Some(ColumnType::Bytes),
        _ => None,
    }
}

/// Kind of a type's values in a program; `None` if programs do not have it.
pub fn value_kind(data_type: &DataType) -> Option<ValueKind> {
    if is_bytes(data_type) {
        return Some(ValueKind::Bytes);
    }
    Some(match column_type(data_type)? {
        ColumnType::Boolean => ValueKind::Boolean,
        ColumnType::Integer { .. } | ColumnType::Float { .. } => ValueKind::Integer,
        ColumnType::Bytes => ValueKind::Bytes,
    })
}

/// Whether values are bytes that are ordered as such.
pub fn is_bytes(data_type: &DataType) -> bool {
    is_binary(data_type) || is_text(data_type)
}

/// Whether values are any bytes.
pub fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// Whether values are UTF-8.
pub fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}
