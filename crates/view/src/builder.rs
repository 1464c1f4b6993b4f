//! The creation of a view.

use std::sync::Arc;

use rockmill_core::{DeclineReason, Error, Result};
use rockmill_cuda::{Device, RequestQueue, RingSettings, Target};
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_exec::host_memory::{HostMemory, default_budget_bytes};
use rockmill_scan::{Database, ScanEngine, ScanSettings, Store};

use crate::estimate::Estimate;
use crate::load::{Snapshot, Source, load};
use crate::ring::Ring;
use crate::version::Families;
use crate::view::View;

/// Settings and creation of a view of a column family.
#[derive(Debug, Clone)]
pub struct Builder {
    database: Arc<dyn Database>,
    family: String,
    target: Target,
    memory_bytes: Option<u64>,
    engine: Option<Arc<ScanEngine>>,
    ring: Option<RingSettings>,
    store: Option<Arc<dyn Store>>,
}

impl Builder {
    pub(crate) fn new(database: Arc<dyn Database>, family: &str) -> Self {
        Self {
            database,
            family: family.to_owned(),
            target: Target::Cuda(0),
            memory_bytes: None,
            engine: None,
            ring: None,
            store: None,
        }
    }

    /// Device of the view: a GPU, or host memory with [`Target::Host`]. By default, the first GPU.
    #[must_use]
    pub fn device(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// Maximum device memory of the view in bytes. The default is four fifths of the device's free memory, or the
    /// memory that scans and compactions of this process can free; in host memory there is no limit. Held versions
    /// count, and during a refresh the old version and the new one do. Loading takes some more for a while.
    #[must_use]
    pub fn memory_bytes(self, memory_bytes: u64) -> Self {
        Self {
            memory_bytes: Some(memory_bytes),
            ..self
        }
    }

    /// The engine that opens files. The default is a separate one, which may take a quarter of the host's memory.
    #[must_use]
    pub fn engine(self, engine: Arc<ScanEngine>) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    /// Allows kernels that hold the view to read from the database and write to it. Without a ring they cannot.
    #[must_use]
    pub fn ring(self, settings: RingSettings) -> Self {
        Self {
            ring: Some(settings),
            ..self
        }
    }

    /// The store that answers kernels. The default is the database, if it is open in this process.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        Self {
            store: Some(store),
            ..self
        }
    }

    /// Estimates the view. Nothing is loaded, and no device is needed.
    ///
    /// # Errors
    /// The errors of [`Builder::open`], except those of the device.
    pub fn estimate(&self) -> Result<Estimate> {
        let taken = Snapshot::new(self.source()?.take()?);
        Ok(Estimate::new(&taken.family, taken.asked))
    }

    /// Takes a snapshot of the database, and loads it.
    ///
    /// # Errors
    /// Declined if there is no such column family, or its keys are not ordered by their bytes; Storage or Corruption if
    /// a file cannot be read; Device if the device cannot be used, or the view exceeds its memory.
    pub fn open(&self) -> Result<View> {
        let source = self.source()?;
        let taken = Snapshot::new(source.take()?);
        let device = DeviceRuntime::gpu(self.target)?;
        let usual = || device.usual_view_bytes();
        let memory_bytes = self.memory_bytes.map_or_else(usual, Ok)?;
        let table = load(&source, &device, &taken, memory_bytes);
        // It may be long until anything else runs on the device.
        device.give_back_idle();
        let table = table?;
        let families = Arc::new(Families::default());
        let ring = self.start_ring(device.gpu_device()?, &families)?;
        View::new(source, device, taken, table, families, ring)
    }

    fn source(&self) -> Result<Source> {
        Ok(Source {
            database: Arc::clone(&self.database),
            engine: match &self.engine {
                Some(engine) => Arc::clone(engine),
                None => default_engine()?,
            },
            family: self.family.clone(),
        })
    }

    fn start_ring(&self, device: &Device, families: &Arc<Families>) -> Result<Option<Ring>> {
        let Some(settings) = self.ring else {
            return Ok(None);
        };
        let store = self.store.clone();
        let Some(store) = store.or_else(|| self.database.store(&self.family)) else {
            let what = "kernels cannot ask a database that is not open in this process: give the view a store, or open \
                        the database here";
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        };
        let queue = RequestQueue::new(device, settings)?;
        let families = Arc::clone(families);
        let version = move |number| families.find(number);
        Ring::start(queue, store, Box::new(version)).map(Some)
    }
}

/// An engine that may keep the indexes of large databases: some 5 % of uncompressed data in blocks of 4 KiB.
fn default_engine() -> Result<Arc<ScanEngine>> {
    /// Loading may take 1/`SHARE` of the memory, and at least as much as other budgets.
    const SHARE: u64 = 4;
    ScanEngine::new(ScanSettings {
        memory_bytes: Some((HostMemory::now().bytes / SHARE).max(default_budget_bytes())),
        ..ScanSettings::default()
    })
}
