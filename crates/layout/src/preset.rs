//! Named layouts of values: `row` and `json`.

use arrow_schema::{DataType, Schema};
use rockmill_core::scan::{JsonType, Number, NumberFormat};

use crate::Part;
use crate::form::Form;
use crate::types::is_bytes;

/// The newest version of `row`, with which its values begin.
pub const ROW_VERSION: u8 = 1;

/// Bytes of the end of a variable column in `row`.
const END_BYTES: u32 = 4;

/// The parts of a value whose layout has this name, for the columns that are not in the key; `None` if the text is a
/// list of parts.
///
/// # Errors
/// One sentence if there is no such version, or if a column has a type that the layout does not have.
pub fn preset(text: &str, schema: &Schema, key: &[Part]) -> Result<Option<Vec<Part>>, String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let is_in_value = |position: &usize| key.iter().all(|part| part.column != Some(*position));
    let columns: Vec<_> = (0..schema.fields().len()).filter(is_in_value).collect();
    match words[..] {
        ["row"] => row(schema, &columns).map(Some),
        ["row", version] => {
            let number = version
                .strip_prefix('v')
                .and_then(|of| of.parse::<u64>().ok());
            match number {
                Some(number) if number == u64::from(ROW_VERSION) => row(schema, &columns).map(Some),
                Some(number) if number > u64::from(ROW_VERSION) => Err(format!(
                    "this version of Rockmill reads rows of version {ROW_VERSION}, and not yet {version}: use a newer one"
                )),
                _ => Err(format!(
                    "{version:?} is not a version of row; say row v{ROW_VERSION}"
                )),
            }
        }
        ["json"] => json(schema, &columns).map(Some),
        _ => Ok(None),
    }
}

/// The version, the bits of nullable columns, columns of fixed size, the ends of the other columns, and these columns.
fn row(schema: &Schema, columns: &[usize]) -> Result<Vec<Part>, String> {
    let hidden = |form| Part { form, column: None };
    let nullable = schema.fields().iter().filter(|field| field.is_nullable());
    let null_bytes = nullable.count().div_ceil(8) as u32;
    let mut parts = vec![hidden(Form::RowVersion)];
    if null_bytes > 0 {
        parts.push(hidden(Form::Nulls(null_bytes)));
    }
    let (variable, fixed): (Vec<_>, Vec<_>) = columns
        .iter()
        .copied()
        .partition(|&column| is_bytes(schema.field(column).data_type()));
    let mut ends_at = 1 + null_bytes;
    for column in fixed {
        let field = schema.field(column);
        let number = number(field.data_type()).ok_or_else(|| {
            format!(
                "column {} of type {} cannot be in a row; say another type",
                field.name(),
                field.data_type()
            )
        })?;
        ends_at += u32::from(number.bytes);
        parts.push(Part {
            form: Form::Number(number),
            column: Some(column),
        });
    }
    let ends = END_BYTES * variable.len() as u32;
    parts.push(hidden(Form::Skip(ends)));
    parts.extend(variable.into_iter().zip(0..).map(|(column, index)| Part {
        form: Form::Variable {
            end_at: ends_at + END_BYTES * index,
            is_first: index == 0,
            begin: ends_at + ends,
        },
        column: Some(column),
    }));
    Ok(parts)
}

/// The end of a variable column.
pub const END: Number = Number {
    bytes: END_BYTES as u8,
    is_big_endian: false,
    format: NumberFormat::Unsigned,
};

/// The form in which a row stores a type of fixed size.
fn number(data_type: &DataType) -> Option<Number> {
    let (bytes, format) = match data_type {
        DataType::Int8 => (1, NumberFormat::Signed),
        DataType::Int16 => (2, NumberFormat::Signed),
        DataType::Int32 | DataType::Date32 => (4, NumberFormat::Signed),
        DataType::Int64 | DataType::Timestamp(..) => (8, NumberFormat::Signed),
        DataType::Decimal128(..) => (16, NumberFormat::Signed),
        DataType::UInt8 => (1, NumberFormat::Unsigned),
        DataType::UInt16 => (2, NumberFormat::Unsigned),
        DataType::UInt32 => (4, NumberFormat::Unsigned),
        DataType::UInt64 => (8, NumberFormat::Unsigned),
        DataType::Float32 => (4, NumberFormat::Float),
        DataType::Float64 => (8, NumberFormat::Float),
        _ => return None,
    };
    Some(Number {
        bytes,
        is_big_endian: false,
        format,
    })
}

/// A JSON object, in which each column is the member of its name.
fn json(schema: &Schema, columns: &[usize]) -> Result<Vec<Part>, String> {
    let member = |&column: &usize| {
        let field = schema.field(column);
        let of_type = json_type(field.data_type()).ok_or_else(|| {
            format!(
                "column {} of type {} cannot be a member of JSON; say varchar, and cast it in queries",
                field.name(),
                field.data_type()
            )
        })?;
        Ok(Part {
            form: Form::Member {
                name: field.name().clone(),
                of_type,
                is_nullable: field.is_nullable(),
            },
            column: Some(column),
        })
    };
    match columns {
        [] => Err("all columns are in the key, and none is left for json".to_owned()),
        columns => columns.iter().map(member).collect(),
    }
}

fn json_type(data_type: &DataType) -> Option<JsonType> {
    let integer = |bytes, is_signed| Some(JsonType::Integer { bytes, is_signed });
    match *data_type {
        DataType::Boolean => Some(JsonType::Boolean),
        DataType::Int8 => integer(1, true),
        DataType::Int16 => integer(2, true),
        DataType::Int32 => integer(4, true),
        DataType::Int64 => integer(8, true),
        DataType::UInt8 => integer(1, false),
        DataType::UInt16 => integer(2, false),
        DataType::UInt32 => integer(4, false),
        DataType::UInt64 => integer(8, false),
        DataType::Float32 => Some(JsonType::Float { bytes: 4 }),
        DataType::Float64 => Some(JsonType::Float { bytes: 8 }),
        DataType::Decimal128(precision, scale) => {
            let scale = u8::try_from(scale).ok()?;
            Some(JsonType::Decimal { precision, scale })
        }
        DataType::Utf8 => Some(JsonType::Text),
        _ => None,
    }
}
