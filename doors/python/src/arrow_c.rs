//! Arrow's C data interface, as other libraries of a Python process use it. Arrow's crates have it; this is what they leave to
//! their callers. <https://arrow.apache.org/docs/format/CDataInterface.html>

use std::ffi::{CStr, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ffi::FFI_ArrowSchema;
use datafusion::arrow::ffi_stream::FFI_ArrowArrayStream;

/// Batches that come one after another.
pub trait Batches: Send {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// One sentence.
    fn next(&mut self) -> Result<Option<RecordBatch>, String>;
}

struct Reader {
    schema: SchemaRef,
    batches: Box<dyn Batches>,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The caller is C, through which no panic can pass.
        let next = catch_unwind(AssertUnwindSafe(|| self.batches.next()));
        let next = next.unwrap_or_else(|_| Err("internal error, please report it".to_owned()));
        // A string of C has no zero byte.
        let error = |error: String| {
            let sentence = error.replace('\0', " ");
            ArrowError::IoError(sentence.clone(), io::Error::other(sentence))
        };
        next.map_err(error).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A stream of batches with these columns.
///
/// # Errors
/// One sentence if the interface does not have a name.
pub fn stream(
    schema: SchemaRef,
    batches: Box<dyn Batches>,
) -> Result<FFI_ArrowArrayStream, String> {
    // The reader of the stream would learn of it too late.
    columns(&schema)?;
    let reader = Reader { schema, batches };
    Ok(FFI_ArrowArrayStream::new(Box::new(reader)))
}

/// The columns of batches.
///
/// # Errors
/// One sentence if the interface does not have a name.
pub fn columns(schema: &Schema) -> Result<FFI_ArrowSchema, String> {
    FFI_ArrowSchema::try_from(schema).map_err(|error| match error {
        ArrowError::CDataInterface(sentence) => {
            format!("Arrow's C interface does not pass these columns: {sentence}")
        }
        other => other.to_string(),
    })
}

/// The columns that a schema of another library describes.
///
/// # Errors
/// One sentence if it describes no columns, or a type that layouts do not have.
///
/// # Safety
/// `schema` is null or a schema of the C data interface.
pub unsafe fn read(schema: *const FFI_ArrowSchema) -> Result<SchemaRef, String> {
    // SAFETY: the caller says so.
    let schema = unsafe { schema.as_ref() }.filter(|schema| schema.release.is_some());
    let schema = schema.ok_or("the schema was released already")?;
    // SAFETY: the interface says so.
    let format = unsafe { text(schema.format) }?;
    if format != "+s" {
        return Err(format!(
            "the schema is of one array of format {format:?}, and not of a table's columns"
        ));
    }
    if schema.children.is_null() && schema.n_children != 0 {
        return Err("the schema has no columns where it says so".to_owned());
    }
    let mut fields = Vec::new();
    for at in 0..usize::try_from(schema.n_children).unwrap_or(0) {
        // SAFETY: the interface says that this is their number.
        let child = unsafe { (*schema.children.add(at)).as_ref() };
        let child = child.filter(|child| child.release.is_some());
        let child = child.ok_or("a column of the schema was released already")?;
        // SAFETY: the interface says so.
        let (name, format) = unsafe { (text(child.name)?, text(child.format)?) };
        // Arrow's crate panics at a format that is not there, and at a list without its column.
        let has_parts = child.n_children != 0 || format.starts_with('+');
        let is_plain = child.dictionary.is_null() && !has_parts && !format.is_empty();
        let data_type = is_plain.then(|| DataType::try_from(child).ok()).flatten();
        let data_type = data_type
            .ok_or_else(|| format!("column {name} has a type that layouts do not have"))?;
        fields.push(Field::new(name, data_type, child.nullable()));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// # Safety
/// `text` is null or a string of C.
unsafe fn text(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|_| "the schema has a name that is not UTF-8".to_owned());
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_another_type_is_refused_by_its_name() {
        for format in ["+l", "+w:3", "+m", "", "no", "w:-1"] {
            let column = FFI_ArrowSchema::try_new(format, vec![], None);
            let column = column.and_then(|column| column.with_name("x")).unwrap();
            let table = FFI_ArrowSchema::try_new("+s", vec![column], None).unwrap();
            // SAFETY: it is a schema.
            let error = unsafe { read(&raw const table) }.unwrap_err();
            assert_eq!(
                error, "column x has a type that layouts do not have",
                "{format}"
            );
        }
    }
}
