//! Output of commands, and formatting of bytes and sizes.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use crate::outcome::Failure;

/// Maximum columns of a table.
const MAX_COLUMNS: u16 = 100;

/// Columns of tables if the output is not a terminal, or a terminal of unknown width.
pub const USUAL_COLUMNS: u16 = 80;

/// Why printing stopped.
#[derive(Debug)]
pub enum Stop {
    /// The value to print could not be obtained.
    Failed(Failure),
    /// The output could not be written.
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

/// Runs `print` with buffered standard output. A reader that closes early, such as `head`, causes no failure.
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

/// Prints `value` as a JSON document, or as text with `text`.
///
/// # Errors
/// Environment if the output cannot be written.
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

/// A JSON array whose rows are printed one by one; prints nothing in text mode.
#[derive(Debug)]
pub struct Rows {
    json: bool,
    printed: bool,
}

impl Rows {
    /// Creates an array that is printed if `json` is set.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            printed: false,
        }
    }

    /// Prints a row.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
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

    /// Ends the array, if it has any rows.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        if !self.printed {
            return Ok(());
        }
        to_stdout(|out| Ok(writeln!(out, "\n]")?))
    }
}

/// Creates a table without borders that wraps cells at the width of the terminal.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.set_header(header);
    fit(&mut table);
    table
}

/// Columns of the terminal that standard output is; `None` if it is not a terminal.
pub fn terminal_columns() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let said = Table::new().width().filter(|&columns| columns > 0);
    Some(said.unwrap_or(USUAL_COLUMNS))
}

/// Removes a table's borders and sets its width to the terminal's, which is returned.
pub fn fit(table: &mut Table) -> u16 {
    let columns = columns();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(columns);
    columns
}

/// Maximum columns of a line.
pub fn columns() -> u16 {
    terminal_columns().unwrap_or(USUAL_COLUMNS).min(MAX_COLUMNS)
}

/// Hides columns of a table, in the order of `spared`, until its lines fit without a break in a word. If all of them are
/// hidden, only words of cells are broken. `--json` prints all.
pub fn spare(table: &mut Table, spared: &[usize], columns: u16) {
    let mut widths = words(table, true);
    let is_too_wide = |widths: &[usize]| widths.iter().sum::<usize>() > usize::from(columns);
    for &index in spared {
        if !is_too_wide(&widths) {
            break;
        }
        widths[index] = 0;
        if let Some(column) = table.column_mut(index) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    if is_too_wide(&widths) {
        widths = words(table, false);
    }
    for (index, &width) in widths.iter().enumerate().filter(|(_, width)| **width > 0) {
        if let Some(column) = table.column_mut(index) {
            let width = Width::Fixed(width as u16);
            column.set_constraint(ColumnConstraint::LowerBoundary(width));
        }
    }
}

/// Returns the width of the longest word of each column: of its title, and of its cells if `of_cells` is set. 0 for a hidden
/// column.
fn words(table: &Table, of_cells: bool) -> Vec<usize> {
    /// Longer words, such as paths, are broken.
    const LONGEST: usize = 24;
    /// A space is on each side of a cell.
    const SPACES: usize = 2;
    let rows = table.row_iter().filter(|_| of_cells);
    let rows = table.header().into_iter().chain(rows);
    let mut widths: Vec<usize> = table.column_iter().map(|_| 0).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.cell_iter()) {
            let text = cell.content();
            let longest = text.split(' ').map(|word| word.chars().count()).max();
            *width = (*width).max(longest.unwrap_or(0).min(LONGEST) + SPACES);
        }
    }
    for (width, column) in widths.iter_mut().zip(table.column_iter()) {
        if column.constraint() == Some(&ColumnConstraint::Hidden) {
            *width = 0;
        }
    }
    widths
}

/// Breaks a sentence into lines that fit the output.
pub fn wrapped(text: &str) -> String {
    lines(text, 0, 0, columns())
}

/// Breaks a sentence into lines that fit the output. All are indented, those behind the first one by two columns more.
pub fn indented(text: &str, indent: usize) -> String {
    lines(text, indent, indent + 2, columns())
}

fn lines(text: &str, first: usize, others: usize, width: u16) -> String {
    let mut lines = vec![" ".repeat(first)];
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let columns = lines[last].chars().count() + 1 + word.chars().count();
        if is_empty {
            lines[last] += word;
        } else if columns <= usize::from(width) {
            lines[last] += &format!(" {word}");
        } else {
            lines.push(" ".repeat(others) + word);
        }
        is_empty = false;
    }
    lines.join("\n")
}

/// Formats bytes as text: printable ASCII except the backslash unchanged, everything else as `\xNN`.
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

/// Like [`escape`], cut to at most `columns` characters; a cut text ends with `..`.
pub fn escape_short(bytes: &[u8], columns: usize) -> String {
    const MARK: &str = "..";
    let mut text = escape(&bytes[..bytes.len().min(columns + 1)]);
    if text.len() > columns {
        text.truncate(columns - MARK.len());
        text.push_str(MARK);
    }
    text
}

/// Formats a size in bytes, from 1 KiB on also rounded in a larger unit.
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

/// A number with the name of what is counted, in the singular or the plural.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats a size in millions of bytes, for tables.
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
    fn a_narrow_table_hides_columns_and_breaks_no_word_of_its_header() {
        for (columns, has_spared) in [(60, true), (30, false)] {
            let mut table = table(["step", "subcompactions", "memory MB", "level"]);
            table.add_row(["1", "12", "512.0", "earlier steps of this"]);
            if let Some(column) = table.column_mut(0) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
            table.set_width(columns);
            spare(&mut table, &[2], columns);
            let text = table.to_string();
            assert!(
                text.contains("subcompactions") && !text.contains("step "),
                "{text}"
            );
            assert_eq!(text.contains("memory"), has_spared, "{text}");
            assert!(
                text.lines().all(|line| line.len() <= usize::from(columns)),
                "{text}"
            );
        }
    }

    #[test]
    fn sentences_are_broken_at_the_width() {
        let text = "word ".repeat(40);
        let broken = lines(&text, 2, 4, 60);
        assert!(broken.lines().count() > 3, "{broken}");
        assert!(broken.lines().all(|line| line.len() <= 60), "{broken}");
    }

    #[test]
    fn one_is_singular() {
        let jobs = |number| count(number, "job", "jobs");
        assert_eq!([0, 1, 2].map(jobs), ["0 jobs", "1 job", "2 jobs"]);
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
