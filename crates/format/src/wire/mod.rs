//! The two messages of RocksDB's CompactionService: the request for a compaction job, and the answer of a worker.
//!
//! ```text
//! message := u32 little endian (1) , struct without braces
//! ```
//!
//! Strings are upper-case hex, so nothing needs escapes; the order of fields is free. As in RocksDB, missing fields
//! keep the default of the C++ struct, and unknown fields of a result are ignored. An unknown field of an input is an
//! error if it is set, because it would be ignored. Malformed values are errors here. RocksDB ignores the part of a hex
//! string that it cannot decode, and the text behind the digits of a number.
//!
//! [`crate::versions`] lists the fields of each version of RocksDB.
//!
//! Source: `db/compaction/compaction_service_job.cc` (`cs_input_type_info`, `cs_result_type_info`
//! and the readers behind them).

mod input;
mod output_file;
mod properties;
mod result;
mod stats;
mod value;

#[cfg(test)]
mod tests;

pub use input::{CompactionServiceInput, GivenOptions};
pub use output_file::OutputFile;
pub use properties::{PropertyKind, PropertyValue, property_kind};
pub use result::CompactionServiceResult;
pub use stats::{JobStats, LevelStats};

use crate::coding::Cursor;
use crate::error::{Error, Result};
use crate::options_file::text::TextSlice;
use value::{Out, Record};

/// The only version of both messages (`BinaryFormatVersion::kOptionsString`).
const VERSION: u32 = 1;

/// The text of a message, without its version.
fn open_envelope(bytes: &[u8]) -> Result<TextSlice<'_>> {
    let mut cursor = Cursor::new(bytes);
    let version = cursor.u32()?;
    if version != VERSION {
        return Err(Error::unsupported(0, format!("message version {version}")));
    }
    let at = cursor.offset();
    let text = std::str::from_utf8(cursor.rest())
        .map_err(|e| Error::corruption(at + e.valid_up_to(), "message is not text"))?;
    if text.is_empty() {
        return Err(Error::corruption(at, "message without text"));
    }
    Ok(TextSlice::new(at as u64, text))
}

/// A message with the fields of `record` that RocksDB of a version reads; zeros stand for the newest.
fn envelope(record: &impl Record, version: [u32; 3]) -> Vec<u8> {
    let mut out = Out {
        text: String::new(),
        version,
    };
    record.write_fields(&mut out);
    let mut message = VERSION.to_le_bytes().to_vec();
    message.extend_from_slice(out.text.as_bytes());
    message
}
