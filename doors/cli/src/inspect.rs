//! `rockmill inspect`: shows the contents of an SST file.

mod blocks;
mod json;
mod layout;
mod properties;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;

use blocks::RangeDeletionRow;
use indicatif::ProgressBar;
use rockmill_core::{Error, InputTable};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rockmill_terminal::output::Stop;

use crate::sst;
use crate::sst::Sst;

/// Number of data blocks listed by default.
const BLOCKS_LISTED: usize = 20;

/// Arguments of `rockmill inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The SST file.
    pub file: PathBuf,
    /// List the entries as well: internal keys and lengths of values, and range tombstones.
    #[arg(long)]
    pub entries: bool,
    /// List at most N data blocks [default: 20] and N entries [default: all].
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// List all data blocks.
    #[arg(long, conflicts_with = "limit")]
    pub all_blocks: bool,
    /// Print one JSON document. Sizes are bytes; keys are escaped as in text but never cut.
    #[arg(long)]
    pub json: bool,
}

/// Limits of the lists.
#[derive(Debug, Clone, Copy)]
struct Extent {
    blocks: usize,
    /// `None` lists no entries.
    entries: Option<usize>,
}

/// Shows a file. Sound parts are shown in spite of damage elsewhere.
///
/// # Errors
/// Data if a part is damaged, naming file and offset; Incomplete if a part is not understood and therefore not shown;
/// Environment if the file cannot be read.
pub fn run(args: InspectArgs) -> Result<(), Failure> {
    let found = std::fs::metadata(&args.file).map_err(|e| Failure::of_path(&args.file, &e))?;
    if found.is_dir() {
        let what = format!("{} is a folder, not an SST file", args.file.display());
        return Err(Failure::Usage(what));
    }
    let sst = Sst::open(&args.file, &ProgressBar::hidden())?;
    let extent = Extent {
        blocks: match args.limit {
            _ if args.all_blocks => usize::MAX,
            limit => limit.unwrap_or(BLOCKS_LISTED),
        },
        entries: args.entries.then_some(args.limit.unwrap_or(usize::MAX)),
    };
    output::to_stdout(|out| {
        if args.json {
            json::print(out, &sst, extent)
        } else {
            text::print(out, &sst, extent)
        }
    })
}

/// Parts that are not shown, with the reasons.
type NotShown = BTreeSet<String>;

fn not_shown(what: &str, why: &Error) -> String {
    format!("{what}, because {} is not known", why.what)
}

/// Returns the range tombstones, and the parts of them that are not shown.
fn range_deletions(table: &InputTable) -> Result<(Vec<RangeDeletionRow>, NotShown), Stop> {
    Ok(match sst::range_tombstones(table)? {
        Ok(found) => {
            let rows = found.into_iter().map(RangeDeletionRow::from);
            (rows.collect(), NotShown::new())
        }
        Err(why) => (Vec::new(), [not_shown("range tombstones", &why)].into()),
    })
}

/// Fails if not everything could be shown.
fn end(table: &InputTable, not_shown: &NotShown) -> Result<(), Stop> {
    let Some(first) = not_shown.first() else {
        return Ok(());
    };
    let what = format!("{}: not shown: {first}", table.file.name());
    Err(Stop::Failed(Failure::Incomplete(what)))
}

/// Returns name and value of the properties of the file as a whole.
fn summary(table: &InputTable) -> Vec<(&'static str, serde_json::Value)> {
    let meta = &table.meta;
    let guard = meta.footer.guard;
    let context = (guard.base_context_checksum != 0)
        .then(|| format!("{:#010x}", guard.base_context_checksum));
    vec![
        ("file", table.file.name().into()),
        ("file_size", meta.file_size.into()),
        ("format_version", meta.footer.format_version.into()),
        ("checksum", sst::checksum_name(guard.checksum).into()),
        ("base_context_checksum", context.into()),
        ("index_type", properties::index_type(meta.index_type).into()),
    ]
}
