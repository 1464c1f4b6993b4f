//! A database that is open for statements.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "distributed")]
use clap::builder::{OsStringValueParser, TypedValueParser};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use futures::TryFutureExt;
use rockmill_cuda::CudaSettings;
use rockmill_exec::device::Device;
use rockmill_scan::{Database, ScanEngine, ScanSettings};
use rockmill_sql::statements::{Split, statements};
use rockmill_sql::{ReadOnly, Scans, refuse_writes};
use rockmill_terminal::outcome::Failure;
use tokio::runtime::Handle;

use super::error::{self, Source, failure};
use super::memory::{self, Limits};
#[cfg(feature = "distributed")]
use super::over::OverArgs;
use super::read_text;
use crate::merge_args::MergeArgs;
use crate::wal_dir::WalDirArgs;
use crate::{database_dir, device};

/// The tables without the information schema.
const TABLES: &str = "select table_schema, table_name, table_type from information_schema.tables \
    where table_schema <> 'information_schema' order by 1, 2";

/// The device name with which Rockmill chooses.
const AUTO: &str = "auto";

/// Name of the file of statements that a database's folder may have.
const TABLES_FILE: &str = "tables.sql";

/// How a database is opened for statements.
#[derive(Debug, Clone, clap::Args)]
pub struct OpenArgs {
    /// Folder of the database. It is only read; the database may be open.
    #[cfg_attr(
        feature = "distributed",
        arg(
            default_value = "",
            hide_default_value = true,
            value_parser = TypedValueParser::map(OsStringValueParser::new(), PathBuf::from),
        )
    )]
    pub db: PathBuf,
    /// Adds the tables of MyRocks that this file describes, with the text of SHOW CREATE TABLE.
    #[arg(long, value_name = "FILE")]
    pub mysql: Option<PathBuf>,
    /// Folder of the logs.
    #[command(flatten)]
    pub wal: WalDirArgs,
    /// Its merge operators.
    #[command(flatten)]
    pub merge: MergeArgs,
    /// Devices, threads and memory.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Other processes.
    #[cfg(feature = "distributed")]
    #[command(flatten)]
    pub over: OverArgs,
}

/// Devices, threads and memory of statements.
#[derive(Debug, Clone, clap::Args)]
pub struct LimitArgs {
    /// Device that filters and aggregates rows: cpu, cuda, cuda:N or auto.
    #[arg(long, default_value = AUTO)]
    pub device: String,
    /// Threads [default: all cores, but at most one for each 32 MiB of memory].
    #[arg(long)]
    pub threads: Option<usize>,
    /// Maximum host memory of statements, in MiB [default: half of what the machine and the cgroups leave to the command].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    pub memory_mib: Option<u64>,
    /// Memory for the next statement, such as 4GiB. With --device cuda, it is GPU memory, for files that statements have read
    /// twice. Else it is host memory for columns that the CPU has parsed, in addition to that of statements [default: none].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,
    /// Folder for data that does not fit into memory. The files have no names, so nothing is left there [default: the
    /// system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,
}

/// A size in bytes, such as 512MiB.
fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let size = unit.and_then(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << bits)
    });
    size.ok_or_else(|| "a size is a number of bytes, or one with KiB, MiB, GiB or TiB".to_owned())
}

/// A database that is open for statements.
#[derive(Clone)]
pub struct Session {
    /// Plans and runs statements.
    pub context: SessionContext,
    /// Its column families.
    pub scans: Scans,
    /// What scans them.
    pub engine: Arc<ScanEngine>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session")
            .field(self.scans.database())
            .finish()
    }
}

/// Reason why a statement ended.
#[derive(Debug)]
pub enum Stop {
    /// A failure of the command.
    Failed(Failure),
    /// An error of the statement.
    Statement(DataFusionError),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Statement(error)
    }
}

impl OpenArgs {
    /// The arguments with these values.
    pub fn of(
        db: PathBuf,
        mysql: Option<PathBuf>,
        wal: WalDirArgs,
        merge: MergeArgs,
        limits: LimitArgs,
    ) -> Self {
        Self {
            db,
            mysql,
            wal,
            merge,
            limits,
            #[cfg(feature = "distributed")]
            over: OverArgs::default(),
        }
    }
}

impl LimitArgs {
    /// Host memory of the cache: none if all scans run on GPUs.
    ///
    /// # Errors
    /// Usage if there is no such device.
    pub(crate) fn host_cache_bytes(&self) -> Result<u64, Failure> {
        let devices = device::parse(&self.device)?;
        let is_gpu = devices
            .iter()
            .all(|device| matches!(device, Device::Cuda(_)));
        Ok(if is_gpu { 0 } else { self.cache.unwrap_or(0) })
    }

    /// The settings of scans with these limits.
    ///
    /// # Errors
    /// Usage if there is no such device.
    pub(crate) fn scans(&self, limits: &Limits) -> Result<ScanSettings, Failure> {
        Ok(ScanSettings {
            devices: device::parse(&self.device)?,
            max_threads: Some(limits.threads),
            memory_bytes: Some(limits.shares.scan_bytes),
            cache_bytes: self.host_cache_bytes()?,
            cuda: CudaSettings {
                cache_bytes: self.cache,
                ..CudaSettings::default()
            },
        })
    }
}

impl Session {
    /// Opens a database, and waits for futures on the runtime. The sentences are warnings for the user. `iterators` are
    /// closed by the caller.
    ///
    /// # Errors
    /// Usage if there is no database, or an argument is wrong; Data if its files are damaged; Environment if they cannot be
    /// read.
    pub fn open(
        args: &OpenArgs,
        iterators: &Arc<ReadOnly>,
        runtime: &Handle,
    ) -> Result<(Self, Vec<String>), Failure> {
        let mut told = Vec::new();
        #[cfg(feature = "distributed")]
        let over = args.over.over()?;
        #[cfg(not(feature = "distributed"))]
        database_dir::require_readable(&args.db)?;
        #[cfg(feature = "distributed")]
        if !over.has_shards() {
            database_dir::require_readable(&args.db)?;
        }
        let mysql = args.mysql.as_deref();
        let mysql =
            mysql.map(|path| Ok::<_, Failure>((read_text(path)?, path.display().to_string())));
        let mysql = mysql.transpose()?;
        let limits = Limits::of(&args.limits)?;
        let (threads, shares) = (limits.threads, limits.shares);
        let settings = args.limits.scans(&limits)?;
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(threads);
        // So errors have a position.
        config.options_mut().sql_parser.collect_spans = true;
        let config = rockmill_sql::configured(config, shares.query_bytes);
        let queries = rockmill_sql::runtime(shares.query_bytes, Some(&limits.spill_dir));
        let of_database = |error| database_dir::failure(&args.db, error);
        let engine = ScanEngine::new(settings).map_err(of_database)?;
        // `auto` uses a GPU once it is open, and does not wait for it.
        if args.limits.device != AUTO
            && let Err(trouble) = engine.wait_for_device()
        {
            told.push(format!("{trouble}; the CPU does its work"));
        }
        #[cfg(feature = "distributed")]
        let shards = over.database(args, &engine)?;
        #[cfg(not(feature = "distributed"))]
        let shards = None;
        let database = match shards {
            Some(shards) => shards,
            None => {
                let (database, of_logs) = args.wal.open(&args.db)?;
                told.extend(of_logs);
                let families = database.families().map_err(of_database)?;
                let operators = args.merge.operators(&args.db, &families)?;
                let database = database.with_iterators(Arc::<ReadOnly>::clone(iterators));
                Arc::new(database.with_merge_operators(operators)) as Arc<dyn Database>
            }
        };
        let finish = |builder: SessionStateBuilder| {
            #[cfg(feature = "distributed")]
            let builder = over.finish(builder, &engine);
            builder
        };
        let context = rockmill_sql::session_by(queries.map_err(failure)?, config, &engine, finish);
        let context = context.map_err(failure)?;
        let scans = Scans::new(Arc::clone(&engine), database);
        #[cfg(feature = "distributed")]
        let scans = over.pinned(scans, &engine);
        scans.register(&context).map_err(failure)?;
        if let Some((text, file)) = mysql {
            let registered = scans.register_mysql(&context, &text, &file);
            told.extend(runtime.block_on(registered).map_err(failure)?);
        }
        let session = Self {
            context,
            scans,
            engine,
        };
        Ok((session, told))
    }

    /// Runs the statements of the database's own file, if it has one.
    ///
    /// # Errors
    /// Environment if the file cannot be read; those of its statements.
    pub fn define_tables(&self, runtime: &Handle) -> Result<(), Failure> {
        let path = self.scans.database().path().join(TABLES_FILE);
        if !path.is_file() {
            return Ok(());
        }
        let (text, file) = (read_text(&path)?, path.display().to_string());
        let source = Source {
            file: Some(&file),
            text: &text,
        };
        let split = Split::of(&text);
        if let Some(trouble) = &split.trouble {
            return Err(source.failure(error::of_tokenizer(trouble)));
        }
        for tokens in split.ended.iter().chain([&split.rest]) {
            let failed = |e| source.failure(error::of_statement(e, tokens, &self.context));
            if let Some(statement) = tokens.parse().map_err(failed)? {
                let defined = self.scans.define_one(&self.context, statement);
                let no_plan = OnceLock::new();
                let defined = memory::within_size(&no_plan, defined.map_err(Stop::from));
                runtime.block_on(defined).map_err(|stop| match stop {
                    Stop::Failed(failure) => failure,
                    Stop::Statement(error) => failed(error),
                })?;
            }
        }
        Ok(())
    }
}

/// What a statement says, if it may run: databases are only read.
///
/// # Errors
/// Those of DataFusion; Plan if it would write to a table of a database.
pub async fn logical_plan(
    context: &SessionContext,
    statement: Statement,
) -> Result<LogicalPlan, DataFusionError> {
    let statement = match lists_tables(&statement) {
        true => statements(TABLES)?.remove(0),
        false => statement,
    };
    let plan = context.state().statement_to_plan(statement).await?;
    refuse_writes(context, &plan).await?;
    Ok(plan)
}

/// Whether a statement is the one that lists the tables.
pub fn lists_tables(statement: &Statement) -> bool {
    statement.to_string() == "SHOW TABLES"
}

/// The plan that runs a statement. A statement that only defines something is done when this returns.
///
/// # Errors
/// Those of DataFusion; Usage if the statement would write to files that exist, or to a folder that does not, and `force`
/// does not allow it.
pub async fn physical_plan(
    context: &SessionContext,
    plan: LogicalPlan,
    force: bool,
) -> Result<Arc<dyn ExecutionPlan>, Stop> {
    let run = match &plan {
        LogicalPlan::Analyze(analyze) => &*analyze.input,
        plan => plan,
    };
    if let LogicalPlan::Copy(copy) = run
        && !force
    {
        refuse_existing(&copy.output_url)?;
    }
    let frame = context.execute_logical_plan(plan).await?;
    Ok(rockmill_sql::plan_query(frame).await?)
}

/// Whether a folder has files, also in folders within it. A statement that has failed leaves folders alone.
fn has_files(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut kinds = entries.map(|entry| (entry.file_type(), entry.path()));
    kinds.any(|(kind, path)| !kind.is_ok_and(|kind| kind.is_dir()) || has_files(&path))
}

/// Refuses to write over a file, or to make the folder for it.
fn refuse_existing(target: &str) -> Result<(), Failure> {
    let path = Path::new(target.strip_prefix("file://").unwrap_or(target));
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && !folder.is_dir()
        && !path.to_string_lossy().contains("://")
    {
        let what = format!(
            "{target}: there is no folder {}, and --force makes it; or name another one",
            folder.display()
        );
        return Err(Failure::Usage(what));
    }
    let what = if path.is_dir() {
        match has_files(path) {
            true => "has files, and --force adds others",
            false => return Ok(()),
        }
    } else if path.exists() {
        "exists, and --force replaces it"
    } else {
        return Ok(());
    };
    let what = format!("{target} {what}; or name another one");
    Err(Failure::Usage(what))
}
