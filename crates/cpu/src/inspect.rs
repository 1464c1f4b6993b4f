//! Rows to a callback.

use rockmill_core::{Error, Result, Row, RowOutput, RowSink};
use rockmill_format::key::{self, ValueType};

use crate::read::retain::Sink;

/// Passes rows on as they come.
pub struct Inspector<'a> {
    pub rows: &'a mut dyn RowSink,
    pub output: RowOutput,
}

impl Sink for Inspector<'_> {
    fn emit(&mut self, user_key: &[u8], tag: u64, value: &[u8], _: u64, _: bool) -> Result<()> {
        let code = key::tag_type(tag);
        let value_type = ValueType::from_code(code)
            .ok_or_else(|| Error::internal(format!("a row of type {code}")))?;
        self.output.rows += 1;
        self.output.bytes += (user_key.len() + value.len()) as u64;
        self.rows.row(Row {
            user_key,
            sequence: key::tag_sequence(tag),
            value_type,
            value,
        })
    }
}
