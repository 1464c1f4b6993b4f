//! `rockmill sql`: queries over a database's files.

pub mod error;
mod format;
pub mod grid;
pub(crate) mod memory;
#[cfg(feature = "distributed")]
mod over;
mod prompt;
mod script;
pub mod session;
mod shell;
mod text;
mod threads;
mod unwritten;
mod words;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use rockmill_sql::ReadOnly;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;

use crate::say;
use error::Source;
use format::Format;
use session::{OpenArgs, Session};
use shell::{Flow, Shell};
use threads::Threads;

/// Arguments of `rockmill sql`.
#[derive(Debug, Clone, clap::Args)]
pub struct SqlArgs {
    #[command(flatten)]
    open: OpenArgs,
    /// Statements, separated by semicolons, or a command such as .tables [default: those of standard input].
    statements: Option<String>,
    /// Runs the statements of this file first, such as CREATE EXTERNAL TABLE .. STORED AS ROCKSDB. Without it, those of
    /// tables.sql in the database's folder are run, if that file exists.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Prints the plans instead of running the statements: which parts scans compute, and which are left to DataFusion,
    /// with the reasons.
    #[arg(long)]
    explain: bool,
    /// Lets COPY replace files and make folders.
    #[arg(long)]
    force: bool,
}

/// Help below the arguments.
pub const EXAMPLES: &str = "Examples:
  rockmill sql ./db \"select count(*) from \\\"default\\\" where starts_with(key, 'user:')\"
  rockmill sql ./db \"select * from rocksdb_files order by bytes desc\"
  rockmill sql ./db \"copy (select key, u32be(value, 0) as n from \\\"default\\\") to 'out.parquet'\"";

/// Bytes of the stack on which statements are parsed and planned: a level of an expression takes some 10 KiB. Unused
/// memory costs nothing.
pub const PLANNING_STACK_BYTES: usize = 1 << 30;

/// Bytes of the stacks on which statements run.
pub const RUNNING_STACK_BYTES: usize = 256 << 20;

/// Runs `rockmill sql`.
///
/// # Errors
/// Usage for an invalid statement, Data for damaged files, else Environment.
pub fn run(args: &SqlArgs) -> Result<(), Failure> {
    #[cfg(feature = "distributed")]
    let args = &over::with_shards(args)?;
    memory::print_no_expected_panics();
    let no_thread = |e| Failure::Environment(format!("no thread: {e}"));
    let iterators = Arc::new(ReadOnly::default());
    let ending = Arc::clone(&iterators);
    signals::before_the_end(move || ending.close())?;
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PLANNING_STACK_BYTES);
        let thread = thread.spawn_scoped(scope, || run_here(args, &iterators));
        match thread.map_err(no_thread)?.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    // A statement that Control-C did not end in time may still hold it.
    iterators.close();
    done
}

fn run_here(args: &SqlArgs, iterators: &Arc<ReadOnly>) -> Result<(), Failure> {
    let threads = Threads::new()?;
    // A missing file is reported before anything else is done.
    let first = args.file.as_deref();
    let first = first
        .map(|path| Ok::<_, Failure>((read_text(path)?, path.display().to_string())))
        .transpose()?;
    let runtime = threads.statements()?;
    let (session, told) = Session::open(&args.open, iterators, runtime.handle())?;
    say(told);
    if first.is_none() {
        session.define_tables(runtime.handle())?;
    }
    drop(runtime);
    let shell = Arc::new(Shell {
        context: session.context,
        threads,
        format: args.format,
        explain: args.explain,
        force: args.force,
    });
    if let Some((text, file)) = first {
        let source = Source {
            file: Some(&file),
            text: &text,
        };
        if shell.run(source)? == Flow::Leave {
            return Ok(());
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

fn read_text(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path);
    text.map_err(|e| Failure::of_path(path, &e))
}

/// The plan as text.
fn plan_text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}
