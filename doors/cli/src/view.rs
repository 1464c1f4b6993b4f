//! `rockmill view`: prints how much memory a view of a database would take on a GPU.

use std::path::PathBuf;
use std::sync::Arc;

use rockmill_core::KeyRange;
use rockmill_format::names;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rockmill_view::{RocksDbRange, View};
use serde::Serialize;

use crate::database_dir;
use crate::say;
use crate::wal_dir::WalDirArgs;

/// Arguments of `rockmill view`.
#[derive(Debug, clap::Args)]
pub struct ViewArgs {
    /// Folder of the database. It is only read; the database may be open. Nothing is loaded, and no GPU is needed.
    db: PathBuf,
    /// The column family.
    #[arg(long, value_name = "NAME", default_value = "default")]
    family: String,
    #[command(flatten)]
    wal: WalDirArgs,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// Size of a view.
#[derive(Debug, Serialize)]
struct Report {
    family: String,
    sequence: u64,
    max_keys: u64,
    slot_bytes: u64,
    record_bytes: u64,
    device_bytes: u64,
    merge_operands: u64,
    asked: Vec<Range>,
}

/// Keys that are not on the device.
#[derive(Debug, Serialize)]
struct Range {
    /// First key; none from the start.
    from: Option<String>,
    /// Exclusive end of the keys; none to the end.
    to: Option<String>,
    stored_bytes: u64,
    reason: String,
}

/// Prints the size of a view of a column family.
///
/// # Errors
/// Usage if there is no such database or column family; Data or Environment if it cannot be read, or if views of it are
/// not possible.
pub fn run(args: &ViewArgs) -> Result<(), Failure> {
    database_dir::require_readable(&args.db)?;
    let of_database = |error| database_dir::failure(&args.db, error);
    let (database, told) = args.wal.open(&args.db)?;
    say(told);
    let family = names::escape(&names::unescape(&args.family));
    let tree = database_dir::read_tree(&args.db)?;
    database_dir::require_family(&args.db, &tree, &names::unescape(&args.family))?;
    let builder = View::builder(Arc::new(database), &family);
    let estimate = builder.estimate().map_err(of_database)?;
    let report = Report {
        family,
        sequence: estimate.sequence,
        max_keys: estimate.keys,
        slot_bytes: estimate.slot_bytes,
        record_bytes: estimate.record_bytes,
        device_bytes: estimate.slot_bytes.saturating_add(estimate.record_bytes),
        merge_operands: estimate.operands,
        asked: estimate.asked.iter().map(Range::new).collect(),
    };
    output::document_or_text(args.json, &report, |out| {
        let (family, sequence) = (&report.family, report.sequence);
        writeln!(
            out,
            "a view of column family {family} at sequence number {sequence}:"
        )?;
        let mut table = output::table(["on the device", "keys or bytes"]);
        table.add_row(["keys, at most", &report.max_keys.to_string()]);
        for (what, bytes) in [
            ("slots", report.slot_bytes),
            ("keys and values, about", report.record_bytes),
            ("in all, about", report.device_bytes),
        ] {
            table.add_row([what, &output::bytes(bytes)]);
        }
        writeln!(out, "{table}")?;
        if report.merge_operands > 0 {
            let what = format!(
                "{} merge operands: RocksDB answers for keys whose newest entry is one.",
                report.merge_operands
            );
            writeln!(out, "{}", output::wrapped(&what))?;
        }
        if report.asked.is_empty() {
            writeln!(out, "No range of keys is left to RocksDB.")?;
            return Ok(());
        }
        writeln!(out, "RocksDB answers for these keys:")?;
        let mut table = output::table(["from", "to", "ranges", "stored", "why"]);
        for row in Row::all(&estimate.asked) {
            let (ranges, stored) = (row.ranges.to_string(), output::bytes(row.stored_bytes));
            table.add_row([row.from, row.to, ranges, stored, row.reason]);
        }
        writeln!(out, "{table}")?;
        Ok(())
    })
}

/// Columns of a key in a table.
const KEY_COLUMNS: usize = 18;

/// Ranges of keys for which RocksDB answers for the same reason, and which are adjacent or similar.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    from: String,
    to: String,
    ranges: u64,
    stored_bytes: u64,
    reason: String,
}

impl Row {
    fn all(asked: &[RocksDbRange]) -> Vec<Self> {
        let cut = |key: &Option<Vec<u8>>| {
            let cut = |key: &Vec<u8>| output::escape_short(key, KEY_COLUMNS);
            key.as_ref().map_or_else(|| "-".to_owned(), cut)
        };
        let mut rows: Vec<Self> = Vec::new();
        let mut end = None;
        for RocksDbRange {
            range,
            bytes,
            reason,
        } in asked
        {
            let (from, to) = (cut(&range.begin), cut(&range.end));
            let goes_on =
                end.is_some_and(|end: &Option<Vec<u8>>| end.is_some() && *end == range.begin);
            let last = rows.last_mut().filter(|last| {
                last.reason == *reason && (goes_on || (&last.from, &last.to) == (&from, &to))
            });
            match last {
                Some(last) => {
                    last.to = to;
                    last.ranges += 1;
                    last.stored_bytes = last.stored_bytes.saturating_add(*bytes);
                }
                None => rows.push(Self {
                    from,
                    to,
                    ranges: 1,
                    stored_bytes: *bytes,
                    reason: reason.clone(),
                }),
            }
            end = Some(&range.end);
        }
        rows
    }
}

impl Range {
    fn new(asked: &RocksDbRange) -> Self {
        let KeyRange { begin, end } = &asked.range;
        let text = |key: &Option<Vec<u8>>| key.as_deref().map(output::escape);
        Self {
            from: text(begin),
            to: text(end),
            stored_bytes: asked.bytes,
            reason: asked.reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_follow_one_another_or_look_alike_share_a_row() {
        let asked = |begin: &str, end: &str, reason: &str| RocksDbRange {
            range: KeyRange {
                begin: Some(begin.into()),
                end: Some(end.into()),
            },
            bytes: 10,
            reason: reason.to_owned(),
        };
        let long = "a key whose end is cut: ";
        let [one, two, three] = ["1", "2", "3"].map(|end| format!("{long}{end}"));
        let rows = Row::all(&[
            asked("a", "b", "x"),
            asked("b", "c", "x"),
            asked("c", "d", "y"),
            asked("e", "f", "y"),
            asked(&one, &two, "x"),
            asked(&two, &three, "x"),
            asked(&three, &one, "x"),
        ]);
        let cut = output::escape_short(long.as_bytes(), KEY_COLUMNS);
        let expected = [
            ("a", "c", 2, "x"),
            ("c", "d", 1, "y"),
            ("e", "f", 1, "y"),
            (&cut, &cut, 3, "x"),
        ];
        let found = rows.iter();
        let found = found.map(|row| (row.from.as_str(), row.to.as_str(), row.ranges, &*row.reason));
        assert!(found.eq(expected), "{rows:?}");
        let stored: Vec<_> = rows.iter().map(|row| row.stored_bytes).collect();
        assert_eq!(stored, [20, 10, 10, 30]);
    }
}
