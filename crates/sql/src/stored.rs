//! Conversion of constants and batches between Arrow and scans.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayData, RecordBatch, RecordBatchOptions};
use datafusion::arrow::array::{ArrayRef, make_array};
use datafusion::arrow::buffer::{Buffer, NullBuffer};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use rockmill_core::scan::{Batch, Column, Literal};
use rockmill_layout::{is_bytes, value_kind};

/// A constant for programs; `None` if they have no such kind.
pub fn literal(value: &ScalarValue) -> Option<Literal> {
    if value.is_null() {
        return value_kind(&value.data_type()).map(Literal::Null);
    }
    let integer = |value: i128| Some(Literal::Integer(value));
    match value {
        ScalarValue::Boolean(Some(value)) => Some(Literal::Boolean(*value)),
        ScalarValue::Int8(Some(value)) => integer(i128::from(*value)),
        ScalarValue::Int16(Some(value)) => integer(i128::from(*value)),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => {
            integer(i128::from(*value))
        }
        ScalarValue::Int64(Some(value))
        | ScalarValue::TimestampSecond(Some(value), _)
        | ScalarValue::TimestampMillisecond(Some(value), _)
        | ScalarValue::TimestampMicrosecond(Some(value), _)
        | ScalarValue::TimestampNanosecond(Some(value), _) => integer(i128::from(*value)),
        ScalarValue::UInt8(Some(value)) => integer(i128::from(*value)),
        ScalarValue::UInt16(Some(value)) => integer(i128::from(*value)),
        ScalarValue::UInt32(Some(value)) => integer(i128::from(*value)),
        ScalarValue::UInt64(Some(value)) => integer(i128::from(*value)),
        ScalarValue::Decimal128(Some(value), ..) => integer(*value),
        ScalarValue::Float32(Some(value)) => integer(i128::from(ordered_f32(*value))),
        ScalarValue::Float64(Some(value)) => integer(i128::from(ordered_f64(*value))),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Some(Literal::Bytes(bytes.clone())),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Some(Literal::Bytes(text.clone().into_bytes())),
        _ => None,
    }
}

/// [`rockmill_core::scan::NumberFormat::Float`] of 4 bytes.
fn ordered_f32(value: f32) -> i32 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

/// [`rockmill_core::scan::NumberFormat::Float`] of 8 bytes.
fn ordered_f64(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// A batch for DataFusion. Values are not copied.
///
/// # Errors
/// If a column does not fit the schema, or text is not UTF-8.
pub fn record_batch(schema: &SchemaRef, batch: Batch) -> Result<RecordBatch> {
    let rows = batch.rows;
    let columns = schema.fields().iter().zip(batch.columns);
    let columns = columns.map(|(field, column)| array(field.data_type(), rows, column));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
    Ok(batch)
}

fn array(data_type: &DataType, rows: usize, column: Column) -> Result<ArrayRef> {
    let validity = column.validity.map(Buffer::from_vec);
    let nulls = validity.map(|bits| NullBuffer::new(bits_of(bits, rows)));
    let mut data = ArrayData::builder(data_type.clone())
        .len(rows)
        .nulls(nulls)
        // The bytes of wide numbers may have any alignment.
        .align_buffers(true);
    if is_bytes(data_type) {
        data = data.add_buffer(Buffer::from_vec(column.offsets));
    }
    let data = data.add_buffer(Buffer::from_vec(column.values)).build()?;
    Ok(make_array(data))
}

fn bits_of(bits: Buffer, rows: usize) -> datafusion::arrow::buffer::BooleanBuffer {
    datafusion::arrow::buffer::BooleanBuffer::new(bits, 0, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_total_order() {
        let ascending = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -1.5,
            -0.0,
            0.0,
            f64::MIN_POSITIVE,
            2.0,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(ascending.map(ordered_f64).is_sorted_by(|a, b| a < b));
        assert!(
            ascending
                .map(|value| ordered_f32(value as f32))
                .is_sorted_by(|a, b| a <= b)
        );
    }
}
