//! Results of verification, file by file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use comfy_table::CellAlignment;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use serde::Serialize;

use super::table::Checked;

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
    /// Number of entries, including range tombstones. Entries, blocks and filter are `None` for a bad file and for a
    /// file that could not be read whole.
    pub entries: Option<u64>,
    /// Data blocks.
    pub blocks: Option<u64>,
    /// Which part of the filter was checked.
    pub filter: Option<String>,
    /// The error; `null` for a good file.
    pub error: Option<String>,
    /// Parts that were not checked, and why.
    pub not_checked: BTreeSet<String>,
    /// The error's meaning for the command.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

impl Row {
    /// Makes the row of a file that was not read yet.
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
            not_checked: BTreeSet::new(),
            failure: None,
        }
    }

    /// Adds the result of the check.
    #[must_use]
    pub fn with(mut self, found: Result<Checked, Failure>) -> Self {
        match found {
            Ok(checked) => {
                self.entries = checked.entries;
                self.blocks = checked.blocks;
                self.filter = Some(checked.filter);
                self.not_checked.extend(checked.not_checked);
            }
            Err(Failure::Incomplete(what)) => {
                self.not_checked.insert(what);
            }
            Err(failure) => self.fail(failure),
        }
        self
    }

    fn verdict(&self) -> &'static str {
        // Every file that was opened has a result for its filter, also if only some parts were checked.
        match (&self.failure, self.not_checked.is_empty()) {
            (Some(Failure::Environment(_)), _) => "not read",
            (Some(_), _) => "bad",
            (None, true) => "ok",
            (None, false) if self.filter.is_none() => "not checked",
            (None, false) => "in part",
        }
    }

    /// Records a failure, unless there is one already.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.error = Some(failure.to_string());
            self.failure = Some(failure);
        }
    }
}

/// Returns the command's failure. Bad data takes precedence over read errors, and these over unchecked parts.
pub fn failure(rows: &[Row]) -> Option<Failure> {
    let failures: Vec<_> = rows.iter().filter_map(|row| row.failure.as_ref()).collect();
    let bad = failures
        .iter()
        .find(|failure| matches!(failure, Failure::Data(_)));
    let Some(worst) = bad.or(failures.first()) else {
        return not_checked(rows);
    };
    if rows.len() == 1 {
        return Some((*worst).clone());
    }
    // The reasons are printed with the rows.
    let what = format!("{} of {}", verdict_of_bad(rows), files(rows.len()));
    Some(match worst {
        Failure::Environment(_) => Failure::Environment(what),
        _ => Failure::Data(what),
    })
}

/// Says how many files are damaged, and how many could not be read.
fn verdict_of_bad(rows: &[Row]) -> String {
    let failures = || rows.iter().filter_map(|row| row.failure.as_ref());
    let unread = failures().filter(|failure| matches!(failure, Failure::Environment(_)));
    let unread = unread.count();
    match (failures().count() - unread, unread) {
        (bad, 0) => format!("{bad} bad"),
        (0, unread) => format!("{unread} not read"),
        (bad, unread) => format!("{bad} bad and {unread} not read"),
    }
}

/// Returns the command's failure if everything that was checked is sound.
fn not_checked(rows: &[Row]) -> Option<Failure> {
    let partly = rows.iter().filter(|row| !row.not_checked.is_empty());
    let count = partly.count();
    (count > 0).then(|| {
        let of = files(rows.len());
        Failure::Incomplete(format!("{count} of {of} could not be checked in full"))
    })
}

fn files(count: usize) -> String {
    output::count(count, "file", "files")
}

/// Prints the rows as a table, and a confirmation if all files are sound.
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
            row.verdict().to_owned(),
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
    if !of_database {
        output::spare(&mut table, &[4], output::columns());
    } else {
        // The narrower a terminal is, the fewer numbers it shows.
        output::spare(&mut table, &[4, 3], output::columns());
    }
    if !rows.is_empty() {
        writeln!(out, "{table}")?;
    }
    let size = output::bytes(rows.iter().fold(0, |sum, row| sum.saturating_add(row.size)));
    // The command ends with the error of a single file.
    let several = rows.iter().filter(|_| rows.len() > 1);
    for error in several.filter_map(|row| row.error.as_ref()) {
        writeln!(out, "{error}")?;
    }
    let mut left_out = BTreeMap::<_, usize>::new();
    for what in rows.iter().flat_map(|row| &row.not_checked) {
        *left_out.entry(what).or_default() += 1;
    }
    for (what, count) in left_out {
        writeln!(out, "not checked in {}: {what}", files(count))?;
    }
    let bad = rows.iter().filter(|row| row.failure.is_some()).count();
    let partly = rows.iter().any(|row| !row.not_checked.is_empty());
    let verdict = match (bad, partly) {
        (0, false) => "all good".to_owned(),
        (0, true) => "all checked parts are good".to_owned(),
        _ => verdict_of_bad(rows),
    };
    writeln!(out, "{}, {size}: {verdict}", files(rows.len()))
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
            Some(Failure::Data("1 bad and 1 not read of 3 files".to_owned()))
        );
    }

    #[test]
    fn what_was_not_checked_is_no_damage_and_said_once() {
        let why = "the order of keys, because comparator reverse is not known";
        let partly = Row {
            not_checked: BTreeSet::from([why.to_owned()]),
            ..row(None)
        };
        let rows = [partly.clone(), row(None), partly];
        let end = failure(&rows).expect("not all was checked");
        assert_eq!(
            (end.exit_code(), end.to_string().contains("2 of 3")),
            (4, true)
        );
        let mut out = Vec::new();
        print(&mut out, &rows).expect("memory takes all");
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.contains(&format!("not checked in 2 files: {why}\n")),
            "{text}"
        );
        let damaged = row(Some(Failure::Data("000009.sst: bad".to_owned())));
        let end = failure(&[rows[0].clone(), damaged]).expect("bad data");
        assert_eq!(end.exit_code(), 1);
    }

    #[test]
    fn a_file_of_which_nothing_was_checked_is_told_from_one_checked_in_part() {
        let why = || BTreeSet::from(["why".to_owned()]);
        let partly = Checked {
            filter: "none".to_owned(),
            not_checked: why(),
            ..Checked::default()
        };
        assert_eq!(row(None).with(Ok(partly)).verdict(), "in part");
        let elsewhere = Failure::Incomplete("it lies elsewhere".to_owned());
        assert_eq!(row(None).with(Err(elsewhere)).verdict(), "not checked");
    }

    #[test]
    fn a_file_that_could_not_be_read_is_not_called_bad_and_its_reason_is_said_once() {
        let refused = || Failure::Environment("000007.sst: permission denied".to_owned());
        let printed = |rows: &[Row]| {
            let mut out = Vec::new();
            print(&mut out, rows).expect("memory takes all");
            let end = failure(rows).expect("it was not read");
            assert_eq!(end.exit_code(), 3);
            String::from_utf8(out).expect("text") + &end.to_string()
        };
        let text = printed(&[row(Some(refused())), row(Some(refused()))]);
        assert!(text.contains("2 files, 2 B: 2 not read"), "{text}");
        assert!(!text.contains("bad"), "{text}");
        assert_eq!(text.matches("permission denied").count(), 2, "{text}");
        let text = printed(&[row(Some(refused()))]);
        assert!(text.contains("1 file, 1 B: 1 not read"), "{text}");
        assert_eq!(text.matches("permission denied").count(), 1, "{text}");
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
        print(&mut out, &[long, row(None)]).expect("memory takes all");
        let text = String::from_utf8(out).expect("text");
        // An error is one line, which terminals wrap.
        let table = text.lines().filter(|line| !line.contains("word"));
        let longest = table.map(|line| line.chars().count()).max();
        assert!(
            longest <= Some(usize::from(output::USUAL_COLUMNS)),
            "{text}"
        );
        assert!(text.contains(&"word ".repeat(80)), "{text}");
    }
}
