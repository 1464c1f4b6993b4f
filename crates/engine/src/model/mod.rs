//! How long a slice will take, on which device.
//!
//! ```text
//!   probe --measures--> Cost, linear in a slice's terms --predict--> seconds, bottleneck
//!     a second, once       kept per machine and version  <--observed-- jobs
//! ```
//!
//! A slice by itself costs so much for each of its terms: entries, bytes, runs, blocks, compression. Slices that run
//! at once share processors, files and links, and wait for the slowest of them. `docs/design/model.md` says how well
//! that holds.

mod cost;
mod faults;
mod fpga;
mod kept;
mod machine;
mod made;
mod measure;
mod memory;
mod predict;
mod probe;
mod rates;
mod scratch;
mod shape;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rockmill_core::{Backend, Result};
use rockmill_cuda::CudaBackend;

pub use cost::Cost;
pub use faults::{Fault, FaultRates};
pub use fpga::{UNIT_STAGES, UnitLink, UnitProfile, UnitSpeed, UnitStage};
pub use machine::{Host, Machine, processor_name};
pub use made::Made;
pub use measure::{Measured, mean};
pub use predict::{Part, Prediction};
pub use probe::{Probe, calibrate, room};
pub use rates::{CPU, CpuRates, GpuRates, Overlap, Rates, StorageRates};
pub use scratch::{Scratch, files_dir};
pub use shape::{SliceShape, Term};
pub use workload::Workload;

use self::kept::GpuModels;
use crate::idle::Idle;
use crate::predict::SliceTime;

/// How long the first start calibrates: with what is measured at its end, less than a second.
pub const CALIBRATION_TIME: Duration = Duration::from_millis(900);

/// The rates of this machine, shared by all who predict and refine.
#[derive(Debug)]
pub struct Model {
    host: Host,
    /// Whose rates are its own to keep, beside the CPU's.
    gpus: GpuModels,
    rates: RwLock<Rates>,
    /// Where they are kept, if there is a place.
    path: Option<PathBuf>,
}

impl Model {
    /// What an earlier start has kept for this machine, or a calibration of about a second while it is `idle`, which
    /// is kept. Files lie in memory meanwhile, or in the system's folder for temporary files.
    ///
    /// # Errors
    /// Those of calibration, Cancelled if that was stopped; what cannot be kept is only told.
    pub fn open(gpus: &[&CudaBackend], idle: &Idle) -> Result<Self> {
        Self::open_at(kept::usual_path(&Host::here()), gpus, idle)
    }

    /// The same with a file of its own, or none.
    ///
    /// # Errors
    /// As above.
    pub fn open_at(path: Option<PathBuf>, gpus: &[&CudaBackend], idle: &Idle) -> Result<Self> {
        let host = Host::here();
        let model = |gpu: &&CudaBackend| gpu.device().about().name.clone();
        let models = gpus.iter().map(|gpu| (gpu.name().to_owned(), model(gpu)));
        let models: GpuModels = models.collect();
        let found = path.as_deref().map(|path| kept::load(path, &host, &models));
        let kept = match found {
            Some(Ok(rates)) => rates,
            Some(Err(why)) => {
                tracing::warn!("{why}");
                None
            }
            None => None,
        };
        // A GPU that nobody has used before has no rates.
        let has_all = |rates: &Rates| gpus.iter().all(|gpu| rates.has(gpu.name()));
        let usable = kept.filter(has_all);
        let is_new = usable.is_none();
        let rates = match usable {
            Some(rates) => rates,
            None => {
                let place = files_dir(None, room(&host, !gpus.is_empty()))?;
                let scratch = Scratch::new(&place)?;
                calibrate(scratch.path(), &host, gpus, CALIBRATION_TIME, idle)?
            }
        };
        let model = Self {
            host,
            gpus: models,
            rates: RwLock::new(rates),
            path,
        };
        if is_new {
            model.keep();
        }
        Ok(model)
    }

    /// What a slice takes on a device while `at_once` such slices run there; `None` if the device has no rates.
    pub fn time(&self, device: &str, shape: &SliceShape, at_once: u32) -> Option<SliceTime> {
        let predicted = self.rates().predict(device, shape, at_once);
        predicted.map(|prediction| SliceTime {
            seconds: prediction.seconds,
            cpu_seconds: prediction.cpu_seconds,
        })
    }

    /// Whether such slices wait for the host on a device, as [`Prediction::is_host_bound`]; not if it has no rates.
    pub fn is_host_bound(&self, device: &str, shape: &SliceShape, at_once: u32) -> bool {
        let predicted = self.rates().predict(device, shape, at_once);
        predicted.is_some_and(|prediction| prediction.is_host_bound())
    }

    /// Takes in what a slice took.
    pub fn observed(&self, device: &str, shape: &SliceShape, at_once: u32, took: SliceTime) {
        let mut rates = self.rates.write().unwrap_or_else(PoisonError::into_inner);
        rates.observe(device, shape, at_once, took);
    }

    /// The rates as they are now.
    pub fn rates(&self) -> RwLockReadGuard<'_, Rates> {
        self.rates.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the rates of its devices for the next start; where that fails, the next start calibrates.
    pub fn keep(&self) {
        let Some(path) = &self.path else {
            return;
        };
        if let Err(error) = kept::save(path, &self.host, &self.gpus, &self.rates()) {
            tracing::warn!(file = %path.display(), %error, "the calibration is not kept");
        }
    }
}
