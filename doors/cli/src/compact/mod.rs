//! `rockmill compact`: a manual compaction of the column families of a closed database.

mod database;
mod decision;
mod objects;
mod options_text;
mod plan;
mod progress;
mod refusal;
mod report;
mod run;
mod task;

use std::path::PathBuf;
use std::str::FromStr;

use rockmill::{OutputCache, Verification};
use rockmill_exec::host_memory::default_budget_bytes;
use rockmill_side_by_side::machine::usual_threads;
use rockmill_snapshot::manual::UserKeys;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;

use crate::merge_args::MergeArgs;
use crate::service_args::ServiceArgs;
use crate::wal_dir::WalDirArgs;
use crate::{database_dir, device};
use refusal::Refusal;
use task::{SelectedFamily, Task};

/// Report for a signal that comes before the database is opened.
const UNTOUCHED: &str = "nothing is compacted, the database is unchanged";

/// Arguments of `rockmill compact`.
#[derive(Debug, clap::Args)]
pub struct CompactArgs {
    /// The folder of a database that no process has open.
    db: PathBuf,
    /// Column family; the option can be repeated [default: all].
    #[arg(long = "column-family", visible_alias = "family", value_name = "NAME")]
    column_families: Vec<String>,
    /// First user key in the order of bytes, as text or as hex after 0x [default: from the start].
    #[arg(long, value_name = "KEY")]
    from: Option<Key>,
    /// Last user key in the order of bytes, as text or as hex after 0x [default: to the end].
    #[arg(long, value_name = "KEY")]
    to: Option<Key>,
    /// Maximum subcompactions in flight, and subcompactions of jobs that RocksDB does itself [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Maximum host memory in MiB of subcompactions in flight [default: 512, or half of the memory that the machine and
    /// the cgroups leave to the command, if that is less].
    #[arg(long, value_parser = clap::value_parser!(u64).range(32..=1_048_576))]
    memory_mib: Option<u64>,
    /// Niceness of Rockmill's threads relative to RocksDB's.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=19))]
    nice: u8,
    /// How thoroughly the output is checked before RocksDB takes it: default, sampled, sampled:N or full.
    #[arg(long, default_value_t = Verification::Default, value_name = "LEVEL")]
    verification: Verification,
    /// Whether Rockmill's output goes through the page cache: database (as the database's options say) or bypass.
    #[arg(long, default_value_t = OutputCache::Database, value_name = "database|bypass")]
    output_cache: OutputCache,
    /// Folder in which files wait until RocksDB takes them, on the database's file system [default: a folder in the
    /// database's].
    #[arg(long, value_name = "DIR")]
    staging_dir: Option<PathBuf>,
    /// Devices that Rockmill computes on: cpu, cuda, cuda:N, several joined by +, or auto.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Maximum MiB to read and write per second [default: no limit].
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=1_048_576))]
    io_mib_per_s: Option<u64>,
    #[command(flatten)]
    wal: WalDirArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    merge: MergeArgs,
    /// Compact again files that are compacted already, as after a change of the compression.
    #[arg(long)]
    force: bool,
    /// Write nothing; print which compactions would run and how, or why not.
    #[arg(long)]
    dry_run: bool,
    /// Print the levels before and after, and Rockmill's counters and times.
    #[arg(long)]
    stats: bool,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// A user key on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key(Vec<u8>);

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(digits) = text.strip_prefix("0x") else {
            return Ok(Self(text.as_bytes().to_vec()));
        };
        let pairs = digits.as_bytes().chunks(2).map(|pair| {
            let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
            Some((digit(0)? << 4 | digit(1)?) as u8)
        });
        let bytes = pairs.collect::<Option<_>>();
        bytes
            .map(Self)
            .ok_or_else(|| "say an even number of hex digits after 0x".to_owned())
    }
}

/// Compacts, or prints the plan.
///
/// # Errors
/// Usage if there is no such database or column family; Environment if another process has it open or the system
/// refuses; Data if it is damaged or needs an object that only its application has; Stopped if a signal came.
pub fn run(args: CompactArgs) -> Result<(), Failure> {
    signals::catch()?;
    let dry_run = args.dry_run;
    let (json, stats) = (args.json, args.stats);
    let (mut task, names) = task(args)?;
    let engine = task.engine()?;
    let in_dir = |error| database_dir::failure(&task.dir, error);
    let of_families: Vec<_> = names.iter().map(String::as_bytes).collect();
    let forecasts = engine.forecast(&task.dir, &of_families, &task.keys);
    let forecasts = forecasts.map_err(in_dir)?;
    signals::check(UNTOUCHED)?;
    let diagnosis = engine.diagnose(&task.dir).map_err(in_dir)?;
    task.families = names
        .into_iter()
        .zip(forecasts)
        .map(|(name, forecast)| SelectedFamily {
            is_reverse: objects::is_reverse(&diagnosis.options, &name),
            name,
            forecast,
        })
        .collect();
    signals::check(UNTOUCHED)?;
    let decision = decision::decide(&task, &diagnosis);
    signals::check(UNTOUCHED)?;
    if dry_run {
        return plan::print(&task, decision, json);
    }
    drop(engine);
    if decision.opening.is_none() && !decision.refusals.is_empty() {
        return Err(Refusal::failure(&task.dir, &decision.refusals));
    }
    let service = task.service()?;
    let (report, ended) = run::compact(&task, &decision, &service)?;
    report.print(json, stats)?;
    ended
}

/// Checks the arguments. Returns the task, and the names of its column families.
fn task(args: CompactArgs) -> Result<(Task, Vec<String>), Failure> {
    database_dir::require_for_jobs(&args.db)?;
    let tree = database_dir::read_tree(&args.db)?;
    let families = tree.column_families.values();
    let families = families.map(|family| String::from_utf8_lossy(&family.name).into_owned());
    let merge_operators = args
        .merge
        .operators(&args.db, &families.collect::<Vec<_>>())?;
    let mut names = Vec::new();
    for text in &args.column_families {
        let name = task::family_name(&args.db, text)?;
        database_dir::require_family(&args.db, &tree, name.as_bytes())?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if args.column_families.is_empty() {
        // A database with a name that is not UTF-8 is left alone as a whole.
        let all = tree.column_families.into_values();
        names = all
            .filter_map(|family| String::from_utf8(family.name).ok())
            .collect();
    }
    let [from, to] = [args.from, args.to].map(|key| key.map(|key| key.0));
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::Usage("--from is behind --to".to_owned()));
    }
    let task = Task {
        dir: args.db,
        families: Vec::new(),
        keys: UserKeys { from, to },
        force: args.force,
        threads: args.threads.unwrap_or_else(usual_threads),
        memory_budget_bytes: (args.memory_mib).map_or_else(default_budget_bytes, |mib| mib << 20),
        nice: args.nice,
        verification: args.verification,
        output_cache: args.output_cache,
        staging_dir: (args.staging_dir).map(|dir| std::path::absolute(&dir).unwrap_or(dir)),
        device: device::parse(&args.device)?,
        io_bytes_per_second: args.io_mib_per_s.unwrap_or(0) << 20,
        wal: args.wal,
        service: args.service,
        merge_operators,
        stated_operators: args.merge.stated().collect(),
    };
    Ok((task, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_or_hex() {
        let key = |text: &str| text.parse::<Key>().map(|key| key.0);
        assert_eq!(key("user1"), Ok(b"user1".to_vec()));
        assert_eq!(key("0x00fF10"), Ok(vec![0, 0xff, 0x10]));
        assert_eq!((key(""), key("0x")), (Ok(vec![]), Ok(vec![])));
        for wrong in ["0x1", "0x1g", "0x+1"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
