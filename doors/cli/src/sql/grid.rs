//! Tables for people: columns are as wide as their contents, and a row is one line.

use std::io::{self, Write};

use datafusion::arrow::array::{Array, RecordBatch, cast::AsArray};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use rockmill_terminal::output::escape;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Maximum rows at a terminal, and maximum rows that decide the width of columns in a pipe.
pub const MAX_ROWS: usize = 1000;

/// Maximum bytes of the rows that decide the width of columns.
const MAX_BYTES: usize = 4 << 20;

/// Maximum characters to which values are padded in a pipe.
const MAX_FILL: usize = 256;

/// Spaces between two columns.
const GAP: usize = 2;

/// Minimum characters to which texts are cut. If that is not enough, columns are omitted.
const LEAST_TEXT: usize = 12;

/// Minimum characters to which numbers are cut.
const LEAST_NUMBER: usize = 24;

/// Mark of cut texts and of omitted columns.
const CUT: &str = "…";

/// A table that is printed.
pub struct Grid<W: Write> {
    out: W,
    /// Columns of the terminal; `None` if everything is printed.
    room: Option<usize>,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    bytes: usize,
    /// Set once the widths of columns are known.
    layout: Option<Layout>,
    shown: Shown,
}

/// What was printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Rows that are there.
    pub rows: usize,
    /// There are more rows.
    pub has_more: bool,
    /// Columns that are there.
    pub columns: usize,
    /// Number of columns that do not fit.
    pub left_out: usize,
    /// A value or a name is cut.
    pub is_cut: bool,
}

struct Column {
    name: String,
    is_number: bool,
    /// The widest of its texts.
    width: usize,
}

impl<W: Write> Grid<W> {
    /// A table with these columns, `room` characters wide.
    pub fn new(out: W, schema: &Schema, room: Option<usize>) -> Self {
        let columns = schema.fields().iter().map(|field| {
            let name = printable(field.name());
            Column {
                width: name.width(),
                name,
                is_number: field.data_type().is_numeric(),
            }
        });
        let columns: Vec<_> = columns.collect();
        let shown = Shown {
            columns: columns.len(),
            ..Shown::default()
        };
        Self {
            out,
            room,
            columns,
            rows: Vec::new(),
            bytes: 0,
            layout: None,
            shown,
        }
    }

    /// Adds rows. Returns whether to continue.
    ///
    /// # Errors
    /// Errors of the output, and of values without a text form.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch.columns().iter();
        let formats = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formats = formats.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            if self.room.is_some() && self.shown.rows == MAX_ROWS {
                self.shown.has_more = true;
                return Ok(false);
            }
            let cells = batch.columns().iter().zip(&formats);
            let cells = cells.map(|(column, format)| cell(column, format, row, self.room));
            let cells = cells.collect::<Result<Vec<_>>>()?;
            self.shown.rows += 1;
            if let Some(layout) = &self.layout {
                self.shown.is_cut |= layout.write(&mut self.out, &self.columns, &cells)?;
                continue;
            }
            for (column, cell) in self.columns.iter_mut().zip(&cells) {
                column.width = column.width.max(cell.width());
                self.bytes += cell.len();
            }
            self.rows.push(cells);
            if self.room.is_none() && (self.rows.len() == MAX_ROWS || self.bytes > MAX_BYTES) {
                self.begin()?;
            }
        }
        Ok(true)
    }

    /// Prints the remaining rows.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<Shown> {
        self.begin()?;
        self.out.flush()?;
        Ok(self.shown)
    }

    /// Decides the widths of columns, and prints the header and the rows so far.
    fn begin(&mut self) -> io::Result<()> {
        if self.layout.is_some() {
            return Ok(());
        }
        let layout = match self.room {
            Some(room) => Layout::within(&self.columns, room),
            None => Layout::whole(&self.columns),
        };
        self.shown.left_out = layout.left_out();
        let names: Vec<_> = self.columns.iter().map(|c| c.name.clone()).collect();
        self.shown.is_cut |= layout.write(&mut self.out, &self.columns, &names)?;
        if self.room.is_some() {
            layout.write_rule(&mut self.out)?;
        }
        for cells in self.rows.drain(..) {
            self.shown.is_cut |= layout.write(&mut self.out, &self.columns, &cells)?;
        }
        self.layout = Some(layout);
        Ok(())
    }
}

/// The printed columns and their widths.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    /// Columns and their widths; `None` stands for omitted columns in the middle.
    places: Vec<Option<(usize, usize)>>,
    columns: usize,
    /// Whether texts are cut to the widths.
    cuts: bool,
}

impl Layout {
    /// All columns at their full widths.
    fn whole(columns: &[Column]) -> Self {
        let width = |column: &Column| column.width.min(MAX_FILL);
        let places = columns.iter().map(width).enumerate().map(Some);
        Self {
            places: places.collect(),
            columns: columns.len(),
            cuts: false,
        }
    }

    /// Cuts the widest columns, and omits some in the middle, until the others fit.
    fn within(columns: &[Column], room: usize) -> Self {
        let least = |at: usize| {
            let column: &Column = &columns[at];
            let least = if column.is_number {
                LEAST_NUMBER
            } else {
                LEAST_TEXT
            };
            column.width.min(least).min(room)
        };
        let (first, last) = ends(columns.len(), room, least);
        let mut places: Vec<_> = (0..first).map(Some).collect();
        let mut room = room.saturating_sub((first + last).saturating_sub(1) * GAP);
        if first + last < columns.len() {
            places.push(None);
            room = room.saturating_sub(GAP + CUT.width());
        }
        places.extend((columns.len() - last..columns.len()).map(Some));
        let width = |at: usize, most: usize| columns[at].width.min(most).max(least(at));
        let needed = |most: usize| {
            let widths = places.iter().flatten().map(|&at| width(at, most));
            widths.sum::<usize>()
        };
        let most = (0..=room).rev().find(|&most| needed(most) <= room);
        let most = most.unwrap_or_default();
        let places = places.iter().map(|at| at.map(|at| (at, width(at, most))));
        Self {
            places: places.collect(),
            columns: columns.len(),
            cuts: true,
        }
    }

    fn left_out(&self) -> usize {
        self.columns - self.places.iter().flatten().count()
    }

    /// Prints a row, and returns whether a text was cut.
    fn write(
        &self,
        out: &mut impl Write,
        columns: &[Column],
        cells: &[String],
    ) -> io::Result<bool> {
        let mut line = String::new();
        let mut is_cut = false;
        for (at, place) in self.places.iter().enumerate() {
            if at > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let Some((column, width)) = *place else {
                line.push_str(CUT);
                continue;
            };
            let mut text = cells[column].as_str();
            let cut;
            if self.cuts && text.width() > width {
                cut = clipped(text, width);
                text = &cut;
            }
            // A value may have been cut before.
            is_cut |= text.ends_with(CUT);
            let fill = " ".repeat(width.saturating_sub(text.width()));
            match columns[column].is_number {
                true => line.extend([&fill, text]),
                false => line.extend([text, &fill]),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
        Ok(is_cut)
    }

    /// Prints the line below the header.
    fn write_rule(&self, out: &mut impl Write) -> io::Result<()> {
        let width = |place: &Option<(usize, usize)>| place.map_or(CUT.width(), |(_, width)| width);
        let rules = self.places.iter().map(|place| "─".repeat(width(place)));
        writeln!(out, "{}", rules.collect::<Vec<_>>().join(&" ".repeat(GAP)))
    }
}

/// How many of the first and of the last columns fit.
fn ends(columns: usize, room: usize, least: impl Fn(usize) -> usize) -> (usize, usize) {
    let all = (0..columns).map(&least).sum::<usize>() + columns.saturating_sub(1) * GAP;
    if all <= room {
        return (columns, 0);
    }
    // The first column is always printed.
    let (mut first, mut last) = (1, 0);
    let mut taken = least(0) + GAP + CUT.width();
    while first + last < columns {
        let takes_first = first <= last;
        let next = if takes_first {
            first
        } else {
            columns - last - 1
        };
        taken += GAP + least(next);
        if taken > room {
            break;
        }
        match takes_first {
            true => first += 1,
            false => last += 1,
        }
    }
    (first, last)
}

/// A value as one line of text; if `most` is given, not much longer than that.
///
/// # Errors
/// If a date or a time has no text.
fn cell(
    column: &dyn Array,
    format: &ArrayFormatter,
    row: usize,
    most: Option<usize>,
) -> Result<String> {
    // Each byte takes at least one character.
    let bytes =
        |bytes: &[u8]| escape(&bytes[..bytes.len().min(most.map_or(usize::MAX, |most| most + 1))]);
    let text = match column.data_type() {
        _ if column.is_null(row) => format.value(row).try_to_string()?,
        DataType::Binary => bytes(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(column.as_fixed_size_binary().value(row)),
        _ => printable(&format.value(row).try_to_string()?),
    };
    Ok(match most {
        Some(most) if text.width() > most => clipped(&text, most),
        _ => text,
    })
}

/// A text of one line. Characters that control a terminal or change the direction of text are escaped.
fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => printed.extend(c.escape_default()),
            c if c.is_control() || turns(c) => printed.extend(c.escape_unicode()),
            c => printed.push(c),
        }
    }
    printed
}

/// The beginning of a text that is too wide.
fn clipped(text: &str, width: usize) -> String {
    let mut clipped = String::new();
    let mut room = width.saturating_sub(CUT.width());
    for part in text.graphemes(true) {
        let Some(left) = room.checked_sub(part.width()) else {
            break;
        };
        room = left;
        clipped.push_str(part);
    }
    clipped + CUT
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, BinaryArray, Int64Array, StringArray};

    use super::*;

    fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
        let columns = columns.iter().cloned();
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .expect("columns")
    }

    fn strings(texts: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    fn printed(batches: &[RecordBatch], room: Option<usize>) -> (String, Shown) {
        let mut out = Vec::new();
        let mut grid = Grid::new(&mut out, &batches[0].schema(), room);
        for batch in batches {
            if !grid.add(batch).expect("memory") {
                break;
            }
        }
        let shown = grid.finish().expect("memory");
        (String::from_utf8(out).expect("text"), shown)
    }

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(-1234)]));
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\x00a"[..], b"", b"\\"]));
        let texts = strings(&["宽", "né", "a\nb\u{1b}"]);
        let rows = batch(&[("n", numbers), ("text", texts), ("bytes", bytes)]);
        let (text, shown) = printed(&[rows], Some(40));
        let lines = [
            "    n  text        bytes",
            "─────  ──────────  ─────",
            "    7  宽          \\x00a",
            " NULL  né",
            "-1234  a\\nb\\u{1b}  \\x5C",
            "",
        ];
        let lines = lines.join("\n");
        assert_eq!(text, lines);
        assert_eq!((shown.rows, shown.left_out, shown.is_cut), (3, 0, false));
    }

    #[test]
    fn the_widest_columns_are_cut() {
        let rows = batch(&[
            ("short", strings(&["abc"])),
            ("long", strings(&[&"宽".repeat(40)])),
            ("longer", strings(&[&"y".repeat(200)])),
        ]);
        let (text, shown) = printed(std::slice::from_ref(&rows), Some(40));
        assert!(text.lines().all(|line| line.width() <= 40), "{text}");
        assert!(
            text.contains("abc") && text.contains("宽…") && text.contains("y…"),
            "{text}"
        );
        assert!(shown.is_cut && shown.left_out == 0);
        let (text, shown) = printed(&[rows], None);
        assert!(text.contains(&"宽".repeat(40)) && text.contains(&"y".repeat(200)));
        assert!(!text.contains(CUT) && !shown.is_cut);
    }

    #[test]
    fn columns_in_the_middle_are_left_out_and_counted() {
        let names: Vec<_> = (0..20).map(|at| format!("column{at:02}")).collect();
        let columns = names
            .iter()
            .map(|name| (name.as_str(), strings(&["value"])));
        let rows = batch(&columns.collect::<Vec<_>>());
        for room in [20, 40, 60, 61, 62, 63, 120] {
            let (text, shown) = printed(std::slice::from_ref(&rows), Some(room));
            assert!(
                text.lines().all(|line| line.width() <= room),
                "{room}\n{text}"
            );
            let shows = |name: &&String| text.contains(*name);
            assert_eq!(
                names.iter().filter(shows).count() + shown.left_out,
                names.len(),
                "{room}\n{text}"
            );
            assert!(
                shows(&&names[0]) && text.contains(CUT) && !shown.is_cut,
                "{room}\n{text}"
            );
            assert_eq!(shows(&&names[19]), room > 20, "{room}\n{text}");
        }
        let (text, shown) = printed(std::slice::from_ref(&rows), Some(20 * 8 + 19 * GAP + 40));
        assert!(!text.contains(CUT) && shown.left_out == 0, "{text}");
        // A terminal of any width gets its lines.
        for room in 1..20 {
            let (text, _) = printed(std::slice::from_ref(&rows), Some(room));
            assert_eq!(text.lines().count(), 3, "{room}\n{text}");
        }
    }

    #[test]
    fn a_terminal_gets_the_first_rows_and_a_pipe_gets_all() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..700));
        let rows = batch(&[("n", numbers)]);
        let batches = [rows.clone(), rows.clone(), rows];
        let (text, shown) = printed(&batches, Some(80));
        assert_eq!(text.lines().count(), 2 + MAX_ROWS);
        assert!(shown.has_more && shown.rows == MAX_ROWS);
        let (text, shown) = printed(&batches, None);
        assert_eq!(text.lines().count(), 1 + 2100);
        assert!(!shown.has_more && shown.rows == 2100);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clipped("abcdef", 4), "abc…");
        assert_eq!(clipped("宽宽宽", 4), "宽…");
        assert_eq!(clipped("e\u{301}e\u{301}e\u{301}", 3), "e\u{301}e\u{301}…");
        assert_eq!(printable("a\u{202e}b\tc"), "a\\u{202e}b\\tc");
    }
}
