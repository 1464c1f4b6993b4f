//! `rockmill sql`: queries over a database's files.

mod format;
mod memory;
mod prompt;
mod text;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use rockmill_scan::{Database, ScanEngine, ScanSettings};
use rockmill_sql::{ReadOnly, Scans};
use rockmill_terminal::outcome::Failure;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::merge_args::MergeArgs;
use crate::wal_dir::WalDirArgs;
use crate::{database_dir, device};
use format::Format;
use memory::Limits;

/// Arguments of `rockmill sql`.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// Folder of the database. It is only read; the database may be open.
    db: PathBuf,
    /// Statements, separated by semicolons [default: those of standard input].
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
    /// How rows are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Where rows are filtered and aggregated: cpu, cuda, cuda:N or auto.
    #[arg(long, default_value = AUTO)]
    device: String,
    /// Threads [default: all cores, but at most one for each 32 MiB of memory].
    #[arg(long)]
    threads: Option<usize>,
    /// Maximum host memory of statements, in MiB [default: half of what the machine and the cgroups leave to the command].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    memory_mib: Option<u64>,
    /// Folder for what has no room in memory. The files have no names, so nothing is left there [default: that of the system
    /// for temporary files].
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    /// Prints the plans instead of running the statements: what scans compute, and what is left to DataFusion and why.
    #[arg(long)]
    explain: bool,
}

/// Help below the arguments.
pub const EXAMPLES: &str = "Examples:
  rockmill sql ./db \"select count(*), sum(octet_length(value)) from \\\"default\\\" where starts_with(key, 'user:')\"
  rockmill sql ./db \"select * from rocksdb_files order by bytes desc\"
  rockmill sql ./db \"copy (select key, u32be(value, 0) as n from \\\"default\\\") to 'out.parquet'\"";

/// The device's name that lets Rockmill choose.
const AUTO: &str = "auto";

/// Bytes of the stack on which statements are parsed and planned: a level of an expression takes some 10 KiB. Memory that
/// is not used costs nothing.
const PLANNING_STACK_BYTES: usize = 1 << 30;

/// Bytes of the stacks on which statements run.
const RUNNING_STACK_BYTES: usize = 256 << 20;

/// Name of the file of statements that a database's folder may have.
const TABLES: &str = "tables.sql";

/// Runs `rockmill sql`.
///
/// # Errors
/// Usage for a statement that is wrong, Data for damaged files, else Environment.
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
    let config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(threads);
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
    // `auto` uses a GPU once it is open, and does not wait for one.
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
    let shell = Shell {
        context,
        runtime,
        format: args.format,
        explain: args.explain,
    };
    if let Some((text, file)) = mysql {
        let registered = scans.register_mysql(&shell.context, &text, &file);
        let warning = shell.runtime.block_on(registered).map_err(failure)?;
        if let Some(warning) = warning {
            eprintln!("rockmill: {warning}");
        }
    }
    match first {
        First::None => {}
        First::Named(first) => shell.run(&first)?,
        First::OfDatabase(first) => {
            let defined = shell.runtime.block_on(scans.define(&shell.context, &first));
            defined.map_err(failure)?;
        }
    }
    match &args.statements {
        Some(statements) => shell.run(statements),
        None if std::io::stdin().is_terminal() => prompt::prompt(&shell),
        None => {
            let mut statements = String::new();
            let read = std::io::stdin().read_to_string(&mut statements);
            read.map_err(|e| Failure::Environment(format!("cannot read standard input: {e}")))?;
            shell.run(&statements)
        }
    }
}

/// Statements that come before the others.
enum First {
    None,
    /// Of a file that was named.
    Named(String),
    /// Of the file that lies in the database's folder.
    OfDatabase(String),
}

fn first_statements(args: &SqlArgs) -> Result<First, Failure> {
    let default = args.db.join(TABLES);
    let path = match &args.file {
        Some(path) => path,
        None if default.is_file() => &default,
        None => return Ok(First::None),
    };
    let text = read_text(path)?;
    Ok(match args.file {
        Some(_) => First::Named(text),
        None => First::OfDatabase(text),
    })
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path);
    text.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))
}

/// A session that prints what statements return.
struct Shell {
    context: SessionContext,
    runtime: Runtime,
    format: Format,
    explain: bool,
}

impl Shell {
    /// Runs statements that are separated by semicolons, up to the first that fails.
    fn run(&self, statements: &str) -> Result<(), Failure> {
        let statements = DFParser::parse_sql(statements).map_err(failure)?;
        // One for all statements, so that none is lost between two of them.
        let mut interrupts = self
            .runtime
            .block_on(async { signal(SignalKind::interrupt()) });
        let interrupts = interrupts.as_mut();
        let interrupts =
            interrupts.map_err(|e| Failure::Environment(format!("no signals: {e}")))?;
        for statement in statements {
            // Planning does not look at signals.
            let watch = self.runtime.spawn(end_if_interrupted());
            let done = self.runtime.block_on(async {
                tokio::select! {
                    done = self.statement(statement) => done,
                    _ = interrupts.recv() => Err(interrupted()),
                }
            });
            watch.abort();
            done?;
        }
        Ok(())
    }

    async fn statement(&self, statement: Statement) -> Result<(), Failure> {
        let is_query = matches!(&statement, Statement::Statement(sql) if is_query(sql));
        let state = self.context.state();
        let plan = state.statement_to_plan(statement).await.map_err(failure)?;
        if self.explain && is_query {
            let plan = state.create_physical_plan(&plan).await.map_err(failure)?;
            return format::explain(&plan);
        }
        let frame = self
            .context
            .execute_logical_plan(plan)
            .await
            .map_err(failure)?;
        // The schema of a statement that defines something is empty.
        let plan = rockmill_sql::plan_query(frame).await.map_err(failure)?;
        if plan.schema().fields().is_empty() {
            return drain(plan, &state).await;
        }
        format::print(self.format, plan, state.task_ctx()).await
    }
}

/// Ends the process some time after Control-C, unless it is aborted.
async fn end_if_interrupted() {
    const PATIENCE: Duration = Duration::from_secs(2);
    if tokio::signal::ctrl_c().await.is_ok() {
        tokio::time::sleep(PATIENCE).await;
        eprintln!("rockmill: {}", interrupted());
        std::process::exit(interrupted().exit_code().into());
    }
}

fn interrupted() -> Failure {
    Failure::Environment("interrupted".to_owned())
}

fn is_query(statement: &datafusion::sql::sqlparser::ast::Statement) -> bool {
    use datafusion::sql::sqlparser::ast::Statement;
    matches!(statement, Statement::Query(_))
}

async fn drain(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<(), Failure> {
    let drained = datafusion::physical_plan::collect(plan, state.task_ctx()).await;
    drained.map(|_| ()).map_err(failure)
}

/// A statement's failure. Those of Rockmill keep their own exit code.
fn failure(error: DataFusionError) -> Failure {
    if let Some(failure) = memory::failure(&error) {
        return failure;
    }
    let root = error.find_root();
    if let DataFusionError::External(external) = root
        && let Some(error) = external.downcast_ref::<rockmill_core::Error>()
    {
        return error.clone().into();
    }
    let text = error.strip_backtrace();
    match root {
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::Configuration(_) => Failure::Usage(text),
        DataFusionError::IoError(_)
        | DataFusionError::ResourcesExhausted(_)
        | DataFusionError::ObjectStore(_) => Failure::Environment(text),
        DataFusionError::Internal(_) => {
            Failure::Environment(format!("internal error, please report it: {text}"))
        }
        _ => Failure::Data(text),
    }
}

/// The plan as text.
fn plan_text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}
