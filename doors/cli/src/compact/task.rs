//! A call of `rockmill compact`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill::{DeviceList, OutputCache, Service, Verification};
use rockmill_compaction::{Engine, Forecast, MutableSettings, Settings};
use rockmill_core::{DeclineReason, Error, ErrorKind};
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

/// A column family that is compacted unless there is a refusal.
#[derive(Debug)]
pub struct SelectedFamily {
    pub name: String,
    /// Whether its keys are in reverse order: it begins with the last key in the order of bytes.
    pub is_reverse: bool,
    pub forecast: Forecast,
}

impl SelectedFamily {
    /// The first file that is damaged or cannot be read.
    pub fn damage(&self, dir: &Path) -> Option<Failure> {
        let is_bad = |error: &Error| match error.kind {
            ErrorKind::Declined(reason) => reason == DeclineReason::InputMissing,
            _ => true,
        };
        let found = self.forecast.found().into_iter().find(is_bad)?;
        Some(database_dir::failure(dir, found))
    }
}

/// The name of the column family that an argument names.
///
/// # Errors
/// Data if it is not UTF-8.
pub fn family_name(dir: &Path, text: &str) -> Result<String, Failure> {
    String::from_utf8(names::unescape(text)).map_err(|_| {
        let dir = dir.display();
        let what = "with a name that is not UTF-8 can only be compacted from its application";
        Failure::Data(format!("{dir}: column family {text} {what}"))
    })
}

/// State that all parts of the command need.
#[derive(Debug)]
pub struct Task {
    pub dir: PathBuf,
    /// The column families that the user names, or all.
    pub families: Vec<SelectedFamily>,
    pub keys: UserKeys,
    /// Whether a column family is compacted although it is compacted already.
    pub force: bool,
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

impl SelectedFamily {
    /// Whether its files have work.
    pub fn has_work(&self, force: bool) -> bool {
        !self.forecast.steps.is_empty() && (force || !self.forecast.is_compacted)
    }
}

impl Task {
    /// The column families that may have work.
    pub fn selected(&self, log_has_entries: bool) -> Vec<&str> {
        let families = self.families.iter();
        let selected = families.filter(|family| log_has_entries || family.has_work(self.force));
        selected.map(|family| family.name.as_str()).collect()
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
