//! The machine's rates beside a running engine: opened while others work, kept when it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cuda::CudaBackend;

use crate::fleet::Gpus;
use crate::idle::Idle;
use crate::model::Model;
use crate::opening::Opening;
use crate::settings::Calibration;

/// Rates that are there as soon as calibration has ended, if it has to run.
#[derive(Debug)]
pub struct Calibrated {
    opening: Opening<Model>,
    idle: Arc<Idle>,
}

impl Calibrated {
    /// Begins to open the rates of `gpus`, once these are open, and calibrates while it is `idle` if it has to.
    /// `None` if nothing is to be calibrated.
    pub fn start(calibration: Calibration, gpus: Gpus, idle: &Arc<Idle>) -> Option<Self> {
        if calibration == Calibration::Off || gpus.is_none() {
            return None;
        }
        let theirs = Arc::clone(idle);
        let opening = Opening::start(move || {
            let gpus = gpus.wait();
            open(&calibration, &gpus, &theirs)
        });
        let idle = Arc::clone(idle);
        Some(Self { opening, idle })
    }

    /// The rates, if they are there.
    pub fn get(&self) -> Option<&Model> {
        self.opening.get()?.as_ref().ok()
    }

    /// Waits until they are there, or it is known that there will be none.
    pub fn wait(&self) {
        let _ = self.opening.wait();
    }
}

fn open(calibration: &Calibration, gpus: &[Arc<CudaBackend>], idle: &Idle) -> Result<Model> {
    let gpus: Vec<&CudaBackend> = gpus.iter().map(Arc::as_ref).collect();
    if gpus.is_empty() {
        return Err(Error::new(ErrorKind::Device, "there is no GPU to predict"));
    }
    let opened = match calibration {
        Calibration::KeptAt(path) => Model::open_at(Some(path.clone()), &gpus, idle),
        _ => Model::open(&gpus, idle),
    };
    if let Err(error) = &opened
        && !idle.is_stopped()
    {
        tracing::warn!(%error, "no cost model; what slices take is learned from them alone");
    }
    opened
}

/// Who ends is waited for so long; a slice of calibration that the driver does not give back is left behind, with all
/// that it works with.
const GRACE: Duration = Duration::from_millis(100);

impl Drop for Calibrated {
    /// What jobs have corrected is kept.
    fn drop(&mut self) {
        self.idle.stop();
        self.opening.leave(GRACE);
        // The thread may be RocksDB's, and who hears that something cannot be kept the application's.
        let _ = catch_unwind(AssertUnwindSafe(|| self.get().map(Model::keep)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rockmill_cuda::{CudaSettings, Target};

    use super::*;
    use crate::clock::SystemClock;
    use crate::device::Device;
    use crate::fleet::Fleet;
    use crate::model::tests::{keep_rates_of_kernels, large};
    use crate::predict::{Learned, Predict, SliceTime};

    const KERNELS: Device = Device::Kernels(Target::Host);

    fn idle() -> Arc<Idle> {
        Arc::new(Idle::new(SystemClock::shared()))
    }

    fn learned(path: &Path, device: Device) -> Learned {
        let fleet = Fleet::open(
            device.into(),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        let calibration = Calibration::KeptAt(path.to_owned());
        Learned::new(Calibrated::start(calibration, fleet.gpus(), &idle()))
    }

    #[test]
    fn kept_rates_predict_and_what_jobs_correct_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.json");
        keep_rates_of_kernels(&path);
        let time = |learned: &Learned| learned.time("cuda-on-host", &large(), 0);
        let before = {
            let learned = learned(&path, KERNELS);
            learned.wait();
            assert!(learned.knows("cuda-on-host") && learned.knows("cpu"));
            assert!(!learned.knows("cuda:0"));
            let before = time(&learned);
            let took = SliceTime {
                seconds: 2.0 * before.seconds,
                cpu_seconds: before.cpu_seconds,
            };
            learned.observed("cuda-on-host", &large(), 0, took);
            before
        };
        let learned = learned(&path, KERNELS);
        learned.wait();
        let after = time(&learned);
        assert!(after.seconds > 1.05 * before.seconds);
        assert!((after.cpu_seconds / before.cpu_seconds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_calibrated_where_there_is_no_gpu_or_it_is_off() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.json");
        for device in [Device::Cpu, Device::Cuda(4711)] {
            let learned = learned(&path, device);
            learned.wait();
            assert!(!learned.knows("cpu") && !path.exists());
        }
        let fleet = Fleet::open(
            KERNELS.into(),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        assert!(Calibrated::start(Calibration::Off, fleet.gpus(), &idle()).is_none());
    }

    #[test]
    fn nothing_is_calibrated_while_a_job_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.json");
        let fleet = Fleet::open(
            KERNELS.into(),
            CudaSettings::default(),
            &SystemClock::shared(),
        );
        assert_eq!(fleet.wait(), Ok(()));
        let idle = idle();
        let runs = idle.job();
        let calibration = Calibration::KeptAt(path.clone());
        let learned = Learned::new(Calibrated::start(calibration, fleet.gpus(), &idle));
        let first = learned.time("cuda-on-host", &large(), 0);
        assert!(first.seconds > 0.0 && !learned.knows("cuda-on-host"));
        drop(learned);
        assert_eq!(idle.spent(), std::time::Duration::ZERO);
        assert!(!path.exists());
        drop(runs);
    }
}
