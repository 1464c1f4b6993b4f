//! A call of `rockmill compact`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill::{DeviceList, OutputCache, Service, Verification};
use rockmill_compaction::{Engine, MutableSettings, Settings};
use rockmill_format::names;
use rockmill_scan::MergeOperators;
use rockmill_side_by_side::device::tell;
use rockmill_side_by_side::rocksdb;
use rockmill_snapshot::manual::UserKeys;
use rockmill_storage::LocalStorage;
use rockmill_terminal::outcome::Failure;

use crate::database_dir;
use crate::service_args::ServiceArgs;
use crate::wal_dir::WalDirArgs;

/// The name of the column family that an argument names.
///
/// # Errors
/// Data if it is not UTF-8.
pub fn family_name(dir: &Path, text: &str) -> Result<String, Failure> {
    String::from_utf8(names::unescape(text)).map_err(|_| {
        let dir = dir.display();
        let what = "with a name that is not UTF-8 is compacted from its application alone";
        Failure::Data(format!("{dir}: column family {text} {what}"))
    })
}

/// State that all parts of the command need.
#[derive(Debug)]
pub struct Task {
    pub dir: PathBuf,
    pub column_family: String,
    pub keys: UserKeys,
    pub threads: u32,
    pub memory_budget_bytes: u64,
    pub nice: u8,
    pub verification: Verification,
    pub output_cache: OutputCache,
    pub staging_dir: Option<PathBuf>,
    pub device: DeviceList,
    /// 0 means no limit.
    pub io_bytes_per_second: u64,
    pub wal: WalDirArgs,
    pub service: ServiceArgs,
    pub merge_operators: MergeOperators,
    /// The same, as they are written.
    pub stated_operators: Vec<String>,
}

impl Task {
    /// Checks that the database has the column family and that the keys are in order.
    ///
    /// # Errors
    /// Usage if there is no such column family or the keys are in the wrong order; the errors of reading the MANIFEST.
    pub fn check(&self) -> Result<(), Failure> {
        let tree = database_dir::read_tree(&self.dir)?;
        database_dir::require_family(&self.dir, &tree, self.column_family.as_bytes())?;
        match (&self.keys.from, &self.keys.to) {
            (Some(from), Some(to)) if from > to => {
                Err(Failure::Usage("--from lies behind --to".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Creates an engine that predicts what a service would do.
    ///
    /// # Errors
    /// Environment if the device cannot be used.
    pub fn engine(&self) -> Result<Engine, Failure> {
        let settings = Settings {
            mutable: MutableSettings {
                threads: self.threads as usize,
                memory_budget_bytes: self.memory_budget_bytes,
                verification: self.verification,
                output_cache: self.output_cache,
                ..MutableSettings::default()
            },
            device: self.device,
            staging_dir: self.staging_dir.clone(),
            merge_operators: self.merge_operators.clone(),
            ..self.service.settings()
        };
        let engine = Engine::new(settings, Arc::new(LocalStorage));
        let engine = engine.map_err(Failure::Environment)?;
        engine.wait_for_device().map_err(Failure::Environment)?;
        tell(engine.device_choice());
        Ok(engine)
    }

    /// Creates the service that compacts.
    ///
    /// # Errors
    /// Environment if the device cannot be used.
    pub fn service(&self) -> Result<Service, Failure> {
        let mut builder = self.service.builder();
        for stated in &self.stated_operators {
            builder = builder.merge_operator(stated);
        }
        if let Some(dir) = &self.staging_dir {
            builder = builder.staging_dir(dir);
        }
        let built = builder
            .threads(self.threads as usize)
            .memory_budget_bytes(self.memory_budget_bytes)
            .nice(self.nice)
            .io_bytes_per_second(self.io_bytes_per_second)
            .verification(self.verification)
            .output_cache(self.output_cache)
            .device(self.device)
            .build();
        let service = built.and_then(|service| service.wait_for_device().map(|()| service));
        service.map_err(|e| Failure::Environment(e.to_string()))
    }

    /// Makes the failure of an operation by RocksDB.
    pub fn failed(&self, doing: &str, error: &rust_rocksdb::Error) -> Failure {
        database_dir::in_front(&self.dir, rocksdb::failed(doing, error))
    }
}
