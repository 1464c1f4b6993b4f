//! The systems that answer queries.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use rockmill::{CudaSettings, DeviceList};
use rockmill_live::LiveDatabase;
use rockmill_scan::{ScanEngine, ScanSettings};
use rockmill_side_by_side::dataset;
use rockmill_sql::{Reads, Scans};
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::DB;

use super::queries::Experiment;
use crate::devices;

/// Cores and memory of each system.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub threads: usize,
    pub memory_bytes: u64,
    /// Host memory for columns, and GPU memory for files and what scans decode.
    pub cache_bytes: u64,
    pub device_cache_bytes: u64,
}

/// A system over a database.
pub struct System {
    /// Name in results.
    pub name: String,
    /// The devices that it computes on.
    pub device: DeviceList,
    /// Whether it reads an export of the tables.
    pub reads_export: bool,
    session: SessionContext,
}

/// The systems over a database. The results of the others are compared with those of the first.
///
/// # Errors
/// Environment if a device cannot be used.
pub async fn of_rocksdb(
    db: &Arc<DB>,
    devices: &[DeviceList],
    limits: Limits,
) -> Result<Vec<System>, Failure> {
    let mut systems = Vec::new();
    let of_iterators = [
        ("iterators", Reads::Iterators),
        ("iterators, programs", Reads::IteratorsAndPrograms),
    ];
    for (name, reads) in of_iterators {
        systems.push(System::new(name.to_owned(), db, cpu()?, reads, limits).await?);
    }
    for &device in devices {
        let name = format!("Rockmill {device}");
        systems.push(System::new(name, db, device, Reads::Files, limits).await?);
    }
    Ok(systems)
}

fn failed(error: DataFusionError) -> Failure {
    Failure::Environment(error.strip_backtrace())
}

impl System {
    async fn new(
        name: String,
        db: &Arc<DB>,
        device: DeviceList,
        reads: Reads,
        limits: Limits,
    ) -> Result<Self, Failure> {
        let settings = ScanSettings {
            devices: device,
            max_threads: Some(limits.threads),
            memory_bytes: Some(limits.memory_bytes),
            cache_bytes: limits.cache_bytes,
            cuda: CudaSettings {
                cache_bytes: Some(limits.device_cache_bytes),
                ..CudaSettings::default()
            },
        };
        let engine = ScanEngine::new(settings)?;
        engine.wait_for_device()?;
        let database = LiveDatabase::new(Arc::clone(db));
        let config = SessionConfig::new().with_target_partitions(limits.threads);
        let session = rockmill_sql::session(config, &engine).map_err(failed)?;
        let scans = Scans::new(engine, Arc::new(database)).reading(reads);
        scans.register(&session).map_err(failed)?;
        let tables = db.path().join(dataset::TABLES);
        let tables = std::fs::read_to_string(&tables)
            .map_err(|e| Failure::Environment(format!("{}: {e}", tables.display())))?;
        scans.define(&session, &tables).await.map_err(failed)?;
        Ok(Self {
            name,
            device,
            reads_export: false,
            session,
        })
    }

    /// The rows of the statements of a query.
    ///
    /// # Errors
    /// Environment if the query fails.
    pub async fn answer(&self, statements: &[String]) -> Result<Vec<RecordBatch>, Failure> {
        let mut rows = Vec::new();
        for statement in statements {
            let frame = self.session.sql(statement).await.map_err(failed)?;
            rows.extend(frame.collect().await.map_err(failed)?);
        }
        Ok(rows)
    }

    /// Stored bytes of the files that a query reads.
    ///
    /// # Errors
    /// Environment if they cannot be read.
    pub async fn bytes(&self, experiment: Experiment) -> Result<u64, Failure> {
        let families = experiment.tables().into_iter();
        let families = families.map(|family| format!("'{family}'"));
        let families = families.collect::<Vec<_>>().join(", ");
        let sql = format!("select sum(bytes) from rocksdb_families where family in ({families})");
        let frame = self.session.sql(&sql).await.map_err(failed)?;
        let batches = frame.collect().await.map_err(failed)?;
        let sum = batches.first().map(|batch| batch.column(0));
        match sum.map(|sum| ScalarValue::try_from_array(sum, 0)) {
            Some(Ok(ScalarValue::UInt64(Some(bytes)))) => Ok(bytes),
            _ => Err(Failure::Environment(
                "the database has no such column families".to_owned(),
            )),
        }
    }

    /// DataFusion over Parquet files, which it writes to `folder`, with the rows of `tables`.
    ///
    /// # Errors
    /// Environment if that fails.
    pub async fn export(
        &self,
        folder: &Path,
        tables: &[&str],
        limits: Limits,
    ) -> Result<Self, Failure> {
        let config = SessionConfig::new().with_target_partitions(limits.threads);
        let session = SessionContext::new_with_config(config);
        for &table in tables {
            let folder = format!("{}/", folder.join(table).display());
            let copy = format!("copy {table} to '{folder}' stored as parquet");
            let frame = self.session.sql(&copy).await.map_err(failed)?;
            frame.collect().await.map_err(failed)?;
            let options = ParquetReadOptions::default();
            let registered = session.register_parquet(table, &folder, options).await;
            registered.map_err(failed)?;
        }
        Ok(Self {
            name: "Parquet".to_owned(),
            device: cpu()?,
            reads_export: true,
            session,
        })
    }

    /// DataFusion over the rows of `tables` as batches in memory.
    ///
    /// # Errors
    /// Environment if that fails.
    pub async fn in_memory(&self, tables: &[&str], limits: Limits) -> Result<Self, Failure> {
        let config = SessionConfig::new().with_target_partitions(limits.threads);
        let session = SessionContext::new_with_config(config);
        for &table in tables {
            let frame = self.session.table(table).await.map_err(failed)?;
            let schema = Arc::clone(frame.schema().inner());
            let partitions = frame.collect_partitioned().await.map_err(failed)?;
            let rows = MemTable::try_new(schema, partitions).map_err(failed)?;
            session
                .register_table(table, Arc::new(rows))
                .map_err(failed)?;
        }
        Ok(Self {
            name: "batches in memory".to_owned(),
            device: cpu()?,
            reads_export: false,
            session,
        })
    }
}

fn cpu() -> Result<DeviceList, Failure> {
    devices::parse("cpu")
}
