//! Statements over other processes.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use rockmill_distributed::{
    Address, Channels, ShardList, Shards, Tls, Workers, over_shards, over_workers,
};
use rockmill_scan::{Database, ScanEngine};
use rockmill_sql::Scans;
use rockmill_terminal::outcome::Failure;

use super::session::OpenArgs;
use super::{SqlArgs, read_text};

/// Other processes that run parts of statements.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OverArgs {
    /// Splits scans over these workers (rockmill worker), which find the database at the same path.
    #[arg(
        long,
        value_name = "HOST:PORT,..",
        value_delimiter = ',',
        conflicts_with = "shards"
    )]
    workers: Vec<Address>,
    /// Reads the databases in this list as one database, in place of DB. The worker on each node scans its own.
    #[arg(long, value_name = "FILE")]
    shards: Option<PathBuf>,
    /// Folder with ca.pem, cert.pem and key.pem: the authority that has signed the certificates of all workers, and the
    /// certificate of this process. Workers on other machines need it.
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
}

/// Where statements run.
pub struct Over {
    workers: Vec<Address>,
    shards: Option<ShardList>,
    channels: Channels,
}

/// The arguments, of which the first is the statement and not the database if there are shards.
///
/// # Errors
/// Usage if there are shards and a database, or neither.
pub fn with_shards(args: &SqlArgs) -> Result<SqlArgs, Failure> {
    let mut args = args.clone();
    let is_empty = args.open.db.as_os_str().is_empty();
    if args.open.over.shards.is_none() {
        return match is_empty {
            false => Ok(args),
            true => Err(Failure::Usage(
                "name the folder of a database, or a list of shards with --shards".to_owned(),
            )),
        };
    }
    if args.open.wal.stated().is_some() {
        let what = "--wal-dir has no effect with --shards: name the folder with wal_dir in the list of shards";
        return Err(Failure::Usage(what.to_owned()));
    }
    if args.statements.is_some() {
        let what = "--shards replaces the folder of the database: give only the statement";
        return Err(Failure::Usage(what.to_owned()));
    }
    let statements = std::mem::take(&mut args.open.db).into_os_string();
    let statements = statements.into_string();
    let statements =
        statements.map_err(|_| Failure::Usage("a statement is not UTF-8".to_owned()))?;
    args.statements = Some(statements).filter(|statements| !statements.is_empty());
    Ok(args)
}

impl OverArgs {
    /// # Errors
    /// Usage if the list of shards is malformed; Environment if a file cannot be read.
    pub fn over(&self) -> Result<Over, Failure> {
        let tls = self.tls.as_deref().map(Tls::read).transpose();
        let tls = tls.map_err(|e| Failure::Environment(e.to_string()))?;
        let shards = self.shards.as_deref().map(|file| {
            let list = ShardList::parse(&read_text(file)?, file);
            list.map_err(|what| Failure::Usage(format!("{}: {what}", file.display())))
        });
        Ok(Over {
            workers: self.workers.clone(),
            shards: shards.transpose()?,
            channels: Channels::new(tls),
        })
    }
}

impl Over {
    pub fn has_shards(&self) -> bool {
        self.shards.is_some()
    }

    /// The database of the shards, if there are any.
    ///
    /// # Errors
    /// Usage if a merge operator is stated for a column family that no shard has.
    pub fn database(
        &self,
        args: &OpenArgs,
        engine: &Arc<ScanEngine>,
    ) -> Result<Option<Arc<dyn Database>>, Failure> {
        let Some(list) = &self.shards else {
            return Ok(None);
        };
        let operators = args.merge.operators(&args.db, &list.families())?;
        let shards = Shards::new(list.clone(), self.channels.clone(), operators, engine);
        Ok(Some(Arc::new(shards)))
    }

    pub fn finish(
        &self,
        builder: SessionStateBuilder,
        engine: &Arc<ScanEngine>,
    ) -> SessionStateBuilder {
        match &self.shards {
            Some(list) => {
                let urls = list.urls(&self.channels);
                over_shards(builder, engine, &self.channels.with_shards(list), urls)
            }
            None if self.workers.is_empty() => builder,
            None => over_workers(builder, engine, &self.workers(engine)),
        }
    }

    /// The tables, whose files workers pin while statements read them.
    pub fn pinned(&self, scans: Scans, engine: &Arc<ScanEngine>) -> Scans {
        match self.workers.is_empty() {
            true => scans,
            false => scans.pinned_by(Arc::new(self.workers(engine))),
        }
    }

    fn workers(&self, engine: &Arc<ScanEngine>) -> Workers {
        Workers::new(&self.workers, self.channels.clone(), engine)
    }
}
