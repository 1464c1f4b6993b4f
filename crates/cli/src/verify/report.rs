//! What verification found, file by file.

use std::io::{self, Write};

use comfy_table::CellAlignment;
use serde::Serialize;

use super::table::Checked;
use crate::outcome::Failure;
use crate::output;

/// One file.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the file.
    pub file: String,
    /// Its column family, if it belongs to a database.
    pub column_family: Option<String>,
    /// Its level, if it belongs to a database.
    pub level: Option<u32>,
    /// Bytes.
    pub size: u64,
    /// Entries, range tombstones included; not known for a bad file, as are blocks and filter.
    pub entries: Option<u64>,
    /// Data blocks.
    pub blocks: Option<u64>,
    /// What of the filter was checked.
    pub filter: Option<String>,
    /// What is wrong; `null` for a good file.
    pub error: Option<String>,
    /// What the error means for the command.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

impl Row {
    /// A file that was not looked at yet.
    pub fn new(file: &str, size: u64) -> Self {
        Self {
            file: file.to_owned(),
            column_family: None,
            level: None,
            size,
            entries: None,
            blocks: None,
            filter: None,
            error: None,
            failure: None,
        }
    }

    /// The same file with what was found.
    #[must_use]
    pub fn with(mut self, found: Result<Checked, Failure>) -> Self {
        match found {
            Ok(checked) => {
                self.entries = Some(checked.entries);
                self.blocks = Some(checked.blocks);
                self.filter = Some(checked.filter);
            }
            Err(failure) => self.fail(failure),
        }
        self
    }

    /// Notes what is wrong, unless something was wrong already.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.error = Some(failure.to_string());
            self.failure = Some(failure);
        }
    }
}

/// How the command ends: bad data comes before trouble with reading.
pub fn failure(rows: &[Row]) -> Option<Failure> {
    let failures: Vec<_> = rows.iter().filter_map(|row| row.failure.as_ref()).collect();
    let worst = failures
        .iter()
        .find(|failure| matches!(failure, Failure::Data(_)))
        .or(failures.first())?;
    if rows.len() == 1 {
        return Some((*worst).clone());
    }
    let what = format!("{} of {} files failed; {worst}", failures.len(), rows.len());
    Some(match worst {
        Failure::Data(_) => Failure::Data(what),
        Failure::Usage(_) => Failure::Usage(what),
        Failure::Environment(_) => Failure::Environment(what),
    })
}

/// Prints the rows as a table and, if all is well, says so.
pub fn print(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let of_database = rows.iter().any(|row| row.level.is_some());
    let or_dash = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut table = output::table([
        "file",
        "column family",
        "level",
        "entries",
        "blocks",
        "filter",
        "result",
    ]);
    for row in rows {
        table.add_row([
            row.file.clone(),
            text(&row.column_family),
            or_dash(row.level.map(u64::from)),
            or_dash(row.entries),
            or_dash(row.blocks),
            text(&row.filter),
            row.error.clone().unwrap_or_else(|| "ok".to_owned()),
        ]);
    }
    const COLUMN_FAMILY: usize = 1;
    for column in table.column_iter_mut().skip(COLUMN_FAMILY + 1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if !of_database {
        for column in table.column_iter_mut().skip(COLUMN_FAMILY).take(2) {
            column.set_constraint(comfy_table::ColumnConstraint::Hidden);
        }
    }
    if !rows.is_empty() {
        writeln!(out, "{table}")?;
    }
    let size = output::bytes(rows.iter().fold(0, |sum, row| sum.saturating_add(row.size)));
    let bad = rows.iter().filter(|row| row.failure.is_some()).count();
    let files = match rows.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    match bad {
        0 => writeln!(out, "{files}, {size}: all good"),
        _ => writeln!(out, "{files}, {size}: {bad} bad"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(failure: Option<Failure>) -> Row {
        let mut row = Row::new("000007.sst", 1);
        if let Some(failure) = failure {
            row.fail(failure);
        }
        row
    }

    #[test]
    fn bad_data_outweighs_what_could_not_be_read() {
        let refused = Failure::Environment("no permission".to_owned());
        let damaged = Failure::Data("000009.sst: bad (at offset 5)".to_owned());
        assert_eq!(failure(&[row(None)]), None);
        assert_eq!(
            failure(&[row(Some(refused.clone()))]),
            Some(refused.clone())
        );
        let both = failure(&[row(Some(refused)), row(None), row(Some(damaged))]);
        assert_eq!(
            both,
            Some(Failure::Data(
                "2 of 3 files failed; 000009.sst: bad (at offset 5)".to_owned()
            ))
        );
    }

    #[test]
    fn the_first_error_of_a_file_stays() {
        let mut row = row(Some(Failure::Data("first".to_owned())));
        row.fail(Failure::Data("second".to_owned()));
        assert_eq!(row.error.as_deref(), Some("first"));
    }

    #[test]
    fn lines_fit_the_terminal() {
        let mut long = row(Some(Failure::Data("word ".repeat(80))));
        long.level = Some(6);
        long.column_family = Some("x".repeat(40));
        let mut out = Vec::new();
        print(&mut out, &[long]).expect("memory takes all");
        let text = String::from_utf8(out).expect("text");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            longest <= Some(usize::from(output::TERMINAL_COLUMNS)),
            "{text}"
        );
    }
}
