//! Rows as text for programs: CSV, and the floats of JSON.

use std::io::{self, Write};
use std::sync::LazyLock;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Float16Type, Float32Type, Float64Type, Schema,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;

/// Writes comma-separated values, with a null as an empty field and an empty text in quotes, so that both can be read
/// back.
pub struct Csv<W: Write> {
    out: W,
    header: Option<Vec<String>>,
}

impl<W: Write> Csv<W> {
    /// A writer of rows with these columns.
    pub fn new(out: W, schema: &Schema) -> Self {
        let names = schema.fields().iter().map(|field| field.name().clone());
        Self {
            out,
            header: Some(names.collect()),
        }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Errors of the output, and of values without a text form.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.header()?;
        let options = FormatOptions::default();
        let columns = batch.columns().iter();
        let formats = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formats = formats.collect::<std::result::Result<Vec<_>, _>>()?;
        let columns = batch.columns().iter();
        let nulls: Vec<_> = columns.map(|column| column.logical_nulls()).collect();
        for row in 0..batch.num_rows() {
            for (at, (nulls, format)) in nulls.iter().zip(&formats).enumerate() {
                if at > 0 {
                    self.out.write_all(b",")?;
                }
                if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                    self.field(&format.value(row).try_to_string()?)?;
                }
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(&mut self) -> Result<()> {
        self.header()?;
        Ok(self.out.flush()?)
    }

    fn header(&mut self) -> io::Result<()> {
        let Some(names) = self.header.take() else {
            return Ok(());
        };
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                self.out.write_all(b",")?;
            }
            self.field(name)?;
        }
        self.out.write_all(b"\n")
    }

    fn field(&mut self, text: &str) -> io::Result<()> {
        match text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
            true => write!(self.out, "\"{}\"", text.replace('"', "\"\"")),
            false => self.out.write_all(text.as_bytes()),
        }
    }
}

/// Writes floats that JSON cannot represent as strings.
#[derive(Debug)]
pub struct FloatsAsText;

impl EncoderFactory for FloatsAsText {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
        /// Encoders of finite floats.
        static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);
        let is_float = matches!(
            array.data_type(),
            DataType::Float16 | DataType::Float32 | DataType::Float64
        );
        if !is_float {
            return Ok(None);
        }
        let finite = make_encoder(field, array, &PLAIN)?;
        let floats = Box::new(Floats { array, finite });
        Ok(Some(NullableEncoder::new(floats, array.nulls().cloned())))
    }
}

struct Floats<'a> {
    array: &'a dyn Array,
    finite: NullableEncoder<'a>,
}

impl Encoder for Floats<'_> {
    fn encode(&mut self, at: usize, out: &mut Vec<u8>) {
        let float = match self.array.data_type() {
            DataType::Float16 => f64::from(self.array.as_primitive::<Float16Type>().value(at)),
            DataType::Float32 => f64::from(self.array.as_primitive::<Float32Type>().value(at)),
            _ => self.array.as_primitive::<Float64Type>().value(at),
        };
        match float {
            float if float.is_nan() => out.extend_from_slice(b"\"NaN\""),
            f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
            f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
            _ => self.finite.encode(at, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, BinaryArray, Float64Array, StringArray};
    use datafusion::arrow::json::{LineDelimitedWriter, WriterBuilder};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let columns = columns.into_iter();
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .expect("columns")
    }

    fn csv(batches: &[RecordBatch]) -> String {
        let mut writer = Csv::new(Vec::new(), &batches[0].schema());
        for batch in batches {
            writer.write(batch).expect("memory");
        }
        writer.finish().expect("memory");
        String::from_utf8(writer.out).expect("text")
    }

    #[test]
    fn null_and_the_empty_text_differ_in_csv() {
        let texts = [
            Some(""),
            None,
            Some("a\"b"),
            Some("c,d"),
            Some("e\nf"),
            Some("g"),
        ];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let bytes = [None, Some(&b""[..]), Some(b"\x00\xff"), None, None, None];
        let bytes: ArrayRef = Arc::new(BinaryArray::from(bytes.to_vec()));
        let both = batch(vec![("a,b", texts), ("bytes", bytes)]);
        let lines = "\"a,b\",bytes\n\"\",\n,\"\"\n\"a\"\"b\",00ff\n\"c,d\",\n\"e\nf\",\ng,\n";
        assert_eq!(
            csv(&[both.clone(), both.slice(5, 1)]),
            format!("{lines}g,\n")
        );
        assert_eq!(csv(&[both.slice(0, 0)]), "\"a,b\",bytes\n");
    }

    #[test]
    fn floats_without_a_number_in_json_are_strings() {
        let floats = [
            Some(1.5),
            Some(f64::NAN),
            Some(f64::INFINITY),
            Some(f64::NEG_INFINITY),
            None,
        ];
        let floats: ArrayRef = Arc::new(Float64Array::from(floats.to_vec()));
        let mut out = Vec::new();
        let writer = WriterBuilder::new().with_encoder_factory(Arc::new(FloatsAsText));
        let mut writer: LineDelimitedWriter<_> = writer.build(&mut out);
        writer.write(&batch(vec![("x", floats)])).expect("memory");
        writer.finish().expect("memory");
        let lines =
            "{\"x\":1.5}\n{\"x\":\"NaN\"}\n{\"x\":\"Infinity\"}\n{\"x\":\"-Infinity\"}\n{}\n";
        assert_eq!(String::from_utf8(out).expect("text"), lines);
    }
}
