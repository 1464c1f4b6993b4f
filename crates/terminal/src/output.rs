//! What commands print, and how bytes and sizes look in it.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::outcome::Failure;

/// Columns that tables have at most.
const MAX_COLUMNS: u16 = 100;

/// Columns of tables where the output is no terminal, or one that does not say.
pub const USUAL_COLUMNS: u16 = 80;

/// Why printing stopped.
#[derive(Debug)]
pub enum Stop {
    /// What was to be printed could not be had.
    Failed(Failure),
    /// The output does not take any more.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<serde_json::Error> for Stop {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

impl From<rockmill_core::Error> for Stop {
    fn from(error: rockmill_core::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Lets `print` write to standard output, buffered. A reader that goes away early, such as `head`, is
/// no failure.
pub fn to_stdout(print: impl FnOnce(&mut dyn Write) -> Result<(), Stop>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = print(&mut out);
    let flushed = out.flush().map_err(Stop::Output);
    match printed.and(flushed) {
        Ok(()) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
        Err(Stop::Output(e)) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(Stop::Output(e)) => Err(Failure::Environment(format!("cannot print: {e}"))),
    }
}

/// Prints `value` as a document for machines, or what `text` makes of it for people.
///
/// # Errors
/// Environment if the output takes nothing.
pub fn document_or_text(
    json: bool,
    value: &(impl Serialize + ?Sized),
    text: impl FnOnce(&mut dyn Write) -> Result<(), Stop>,
) -> Result<(), Failure> {
    to_stdout(|out| {
        if !json {
            return text(out);
        }
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)?;
        Ok(())
    })
}

/// A document of rows for machines, each printed once it is there; prints nothing where people read.
#[derive(Debug)]
pub struct Rows {
    json: bool,
    printed: bool,
}

impl Rows {
    /// A document if `json` is set.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            printed: false,
        }
    }

    /// Prints a row.
    ///
    /// # Errors
    /// Environment if the output takes nothing.
    pub fn print(&mut self, row: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let before = if self.printed { ",\n" } else { "[\n" };
        self.printed = true;
        to_stdout(|out| {
            write!(out, "{before}")?;
            Ok(serde_json::to_writer_pretty(out, row)?)
        })
    }

    /// Ends the document, if there is any row.
    ///
    /// # Errors
    /// Environment if the output takes nothing.
    pub fn finish(self) -> Result<(), Failure> {
        if !self.printed {
            return Ok(());
        }
        to_stdout(|out| Ok(writeln!(out, "\n]")?))
    }
}

/// A table without lines that wraps cells at the width of the terminal.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.set_header(header);
    fit(&mut table);
    table
}

/// Takes lines away from a table, and has it wrap cells at the width of the terminal, which it returns.
pub fn fit(table: &mut Table) -> u16 {
    let columns = if io::stdout().is_terminal() {
        let said = table.width().filter(|&columns| columns > 0);
        said.unwrap_or(USUAL_COLUMNS).min(MAX_COLUMNS)
    } else {
        USUAL_COLUMNS
    };
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(columns);
    columns
}

/// A sentence on lines of the usual width.
pub fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let columns = lines[last].chars().count() + 1 + word.chars().count();
        if lines[last].is_empty() {
            lines[last] += word;
        } else if columns <= usize::from(USUAL_COLUMNS) {
            lines[last] += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// Bytes as text: printable ASCII but the backslash as it is, all else as `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\x5C"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

/// [`escape`] cut to at most `columns` characters; what was cut ends with `..`.
pub fn escape_short(bytes: &[u8], columns: usize) -> String {
    const MARK: &str = "..";
    let mut text = escape(&bytes[..bytes.len().min(columns + 1)]);
    if text.len() > columns {
        text.truncate(columns - MARK.len());
        text.push_str(MARK);
    }
    text
}

/// A size in bytes, from 1 KiB on with its rounded value in a larger unit.
pub fn bytes(size: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    const STEP: f64 = 1024.0;
    let mut scaled = size as f64 / STEP;
    if scaled < 1.0 {
        return format!("{size} B");
    }
    let mut unit = 0;
    while scaled >= STEP && unit + 1 < UNITS.len() {
        scaled /= STEP;
        unit += 1;
    }
    format!("{size} B ({scaled:.1} {})", UNITS[unit])
}

/// A size in millions of bytes, as tables show it.
pub fn megabytes(size: u64) -> String {
    format!("{:.1}", size as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_ascii_stays_as_it_is() {
        assert_eq!(escape(b"user 01~"), "user 01~");
        assert_eq!(escape(b"\x00a\\\x7f\xff\n"), "\\x00a\\x5C\\x7F\\xFF\\x0A");
    }

    #[test]
    fn long_keys_are_cut_to_their_columns() {
        assert_eq!(escape_short(b"abcdef", 6), "abcdef");
        assert_eq!(escape_short(b"abcdefg", 6), "abcd..");
        assert_eq!(escape_short(&[0; 9], 6), "\\x00..");
        assert_eq!(escape_short(b"", 6), "");
    }

    #[test]
    fn sizes_carry_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1536 B (1.5 KiB)");
        assert_eq!(bytes(3 << 20), "3145728 B (3.0 MiB)");
        assert!(bytes(u64::MAX).ends_with("PiB)"));
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        let closed = to_stdout(|_| Err(io::Error::from(ErrorKind::BrokenPipe).into()));
        assert_eq!(closed, Ok(()));
        let full = to_stdout(|_| Err(io::Error::from(ErrorKind::StorageFull).into()));
        assert_eq!(full.unwrap_err().exit_code(), 3);
    }
}
