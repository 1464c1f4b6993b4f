//! `rockmill view`: says what a view of a database would take on a GPU.

use std::path::PathBuf;
use std::sync::Arc;

use rockmill_core::KeyRange;
use rockmill_format::names;
use rockmill_scan::Directory;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rockmill_view::{Asked, View};
use serde::Serialize;

use crate::database_dir;

/// Arguments of `rockmill view`.
#[derive(Debug, clap::Args)]
pub struct ViewArgs {
    /// Folder of the database. It is only read; the database may be open. Nothing is loaded, and no GPU is needed.
    db: PathBuf,
    /// The column family.
    #[arg(long, value_name = "NAME", default_value = "default")]
    family: String,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// What a view would take.
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
    /// End of the keys, which is not one of them; none to the end.
    to: Option<String>,
    stored_bytes: u64,
    reason: String,
}

/// Says what a view of a column family would take.
///
/// # Errors
/// Usage if there is no such database or column family; Data or Environment if it cannot be read, or there are no views of
/// it.
pub fn run(args: &ViewArgs) -> Result<(), Failure> {
    database_dir::require(&args.db)?;
    let of_database = |error| database_dir::failure(&args.db, error);
    let database = Directory::open(&args.db).map_err(of_database)?;
    let family = names::escape(&names::unescape(&args.family));
    let tree = database_dir::read_tree(&args.db)?;
    database_dir::require_family(&args.db, &tree, &names::unescape(&args.family))?;
    let builder = View::builder(Arc::new(database), &family);
    let foreseen = builder.foresee().map_err(of_database)?;
    let report = Report {
        family,
        sequence: foreseen.sequence,
        max_keys: foreseen.keys,
        slot_bytes: foreseen.slot_bytes,
        record_bytes: foreseen.record_bytes,
        device_bytes: foreseen.slot_bytes.saturating_add(foreseen.record_bytes),
        merge_operands: foreseen.operands,
        asked: foreseen.asked.iter().map(Range::new).collect(),
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
        let mut table = output::table(["from", "to", "stored", "why"]);
        for (range, asked) in report.asked.iter().zip(&foreseen.asked) {
            let [from, to] = [&asked.range.begin, &asked.range.end].map(|key| {
                let cut = |key: &Vec<u8>| output::escape_short(key, KEY_COLUMNS);
                key.as_ref().map_or_else(|| "-".to_owned(), cut)
            });
            let stored = output::bytes(range.stored_bytes);
            table.add_row([from, to, stored, range.reason.clone()]);
        }
        writeln!(out, "{table}")?;
        Ok(())
    })
}

/// Columns of a key in a table.
const KEY_COLUMNS: usize = 18;

impl Range {
    fn new(asked: &Asked) -> Self {
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
