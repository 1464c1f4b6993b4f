//! `rockmill sql`: queries over a database's files.

mod error;
mod format;
mod grid;
mod memory;
mod prompt;
mod script;
mod shell;
mod text;
mod words;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;
use rockmill_scan::{Database, ScanEngine, ScanSettings};
use rockmill_sql::{ReadOnly, Scans};
use rockmill_terminal::outcome::Failure;
use tokio::runtime::Builder;

use crate::merge_args::MergeArgs;
use crate::wal_dir::WalDirArgs;
use crate::{database_dir, device};
use error::{Source, failure};
use format::Format;
use memory::Limits;
use shell::{Flow, Shell};

/// Arguments of `rockmill sql`.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// Folder of the database. It is only read; the database may be open.
    db: PathBuf,
    /// Statements, separated by semicolons, or a command such as .tables [default: those of standard input].
    statements: Option<String>,
    /// Runs the statements of this file first, such as CREATE EXTERNAL TABLE .. STORED AS ROCKSDB. Without it, those of
    /// tables.sql in the database's folder are run, if that file exists.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Adds the tables of MyRocks that this file describes, with the text of SHOW CREATE TABLE.
    #[arg(long, value_name = "FILE")]
    mysql: Option<PathBuf>,
    #[command(flatten)]
    wal: WalDirArgs,
    #[command(flatten)]
    merge: MergeArgs,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Device that filters and aggregates rows: cpu, cuda, cuda:N or auto.
    #[arg(long, default_value = AUTO)]
    device: String,
    /// Threads [default: all cores, but at most one for each 32 MiB of memory].
    #[arg(long)]
    threads: Option<usize>,
    /// Maximum host memory of statements, in MiB [default: half of what the machine and the cgroups leave to the command].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    memory_mib: Option<u64>,
    /// Folder for data that does not fit into memory. The files have no names, so nothing is left there [default: the
    /// system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    /// Prints the plans instead of running the statements: which parts scans compute, and which are left to DataFusion,
    /// with the reasons.
    #[arg(long)]
    explain: bool,
    /// Lets COPY replace files.
    #[arg(long)]
    force: bool,
}

/// Help below the arguments.
pub const EXAMPLES: &str = "Examples:
  rockmill sql ./db \"select count(*), sum(octet_length(value)) from \\\"default\\\" where starts_with(key, 'user:')\"
  rockmill sql ./db \"select * from rocksdb_files order by bytes desc\"
  rockmill sql ./db \"copy (select key, u32be(value, 0) as n from \\\"default\\\") to 'out.parquet'\"";

/// The device name with which Rockmill chooses.
const AUTO: &str = "auto";

/// Bytes of the stack on which statements are parsed and planned: a level of an expression takes some 10 KiB. Unused
/// memory costs nothing.
const PLANNING_STACK_BYTES: usize = 1 << 30;

/// Bytes of the stacks on which statements run.
const RUNNING_STACK_BYTES: usize = 256 << 20;

/// Name of the file of statements that a database's folder may have.
const TABLES: &str = "tables.sql";

/// Runs `rockmill sql`.
///
/// # Errors
/// Usage for an invalid statement, Data for damaged files, else Environment.
pub fn run(args: &SqlArgs) -> Result<(), Failure> {
    let no_thread = |e| Failure::Environment(format!("no thread: {e}"));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PLANNING_STACK_BYTES);
        let thread = thread.spawn_scoped(scope, || run_here(args));
        match thread.map_err(no_thread)?.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn run_here(args: &SqlArgs) -> Result<(), Failure> {
    database_dir::require(&args.db)?;
    let first = first_statements(args)?;
    let mysql = args.mysql.as_deref();
    let mysql = mysql.map(|path| Ok::<_, Failure>((read_text(path)?, path.display().to_string())));
    let mysql = mysql.transpose()?;
    let limits = Limits::of(args);
    let (threads, shares) = (limits.threads, limits.shares);
    let settings = ScanSettings {
        devices: device::parse(&args.device)?,
        max_threads: Some(threads),
        memory_bytes: Some(shares.scan_bytes),
        ..ScanSettings::default()
    };
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(threads);
    // Errors tell where.
    config.options_mut().sql_parser.collect_spans = true;
    let config = rockmill_sql::configured(config, shares.query_bytes);
    let queries =
        rockmill_sql::runtime(shares.query_bytes, Some(&limits.spill_dir)).map_err(failure)?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(RUNNING_STACK_BYTES)
        .build();
    let runtime = runtime.map_err(|e| Failure::Environment(format!("no threads: {e}")))?;
    let of_database = |error| database_dir::failure(&args.db, error);
    let engine = ScanEngine::new(settings).map_err(of_database)?;
    // `auto` uses a GPU once it is open, and does not wait for it.
    if args.device != AUTO
        && let Err(trouble) = engine.wait_for_device()
    {
        eprintln!("rockmill: {trouble}; the CPU does its work");
    }
    let database = args.wal.open(&args.db)?;
    let families = database.families().map_err(of_database)?;
    let operators = args.merge.operators(&args.db, &families)?;
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let database = database.with_merge_operators(operators);
    let context = rockmill_sql::session_in(queries, config, &engine).map_err(failure)?;
    let scans = Scans::new(engine, Arc::new(database));
    scans.register(&context).map_err(failure)?;
    let shell = Arc::new(Shell {
        context,
        runtime,
        format: args.format,
        explain: args.explain,
        force: args.force,
    });
    if let Some((text, file)) = mysql {
        let registered = scans.register_mysql(&shell.context, &text, &file);
        let warning = shell.runtime.block_on(registered).map_err(failure)?;
        if let Some(warning) = warning {
            eprintln!("rockmill: {warning}");
        }
    }
    if let Some(first) = first {
        let file = first.path.display().to_string();
        let source = Source {
            file: Some(&file),
            text: &first.text,
        };
        match first.is_of_database {
            true => shell.define(&scans, source)?,
            false => {
                if shell.run(source)? == Flow::Leave {
                    return Ok(());
                }
            }
        }
    }
    let run = |text: &str| shell.run(Source { file: None, text }).map(|_| ());
    match &args.statements {
        Some(statements) => run(statements),
        None if std::io::stdin().is_terminal() => prompt::prompt(&shell),
        None => {
            let mut statements = String::new();
            let read = std::io::stdin().read_to_string(&mut statements);
            read.map_err(|e| Failure::Environment(format!("cannot read standard input: {e}")))?;
            run(&statements)
        }
    }
}

/// Statements that run before the others.
struct First {
    path: PathBuf,
    text: String,
    /// Whether the file is in the database's folder, and was not named.
    is_of_database: bool,
}

fn first_statements(args: &SqlArgs) -> Result<Option<First>, Failure> {
    let default = args.db.join(TABLES);
    let path = match &args.file {
        Some(path) => path,
        None if default.is_file() => &default,
        None => return Ok(None),
    };
    Ok(Some(First {
        path: path.clone(),
        text: read_text(path)?,
        is_of_database: args.file.is_none(),
    }))
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path);
    text.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))
}

/// The plan as text.
fn plan_text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}
