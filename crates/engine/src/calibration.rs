//! The machine's rates beside a running engine: opened while others work, kept now and then and when it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    keeping: Mutex<Keeping>,
}

/// Keeping what jobs have corrected while others follow.
#[derive(Debug)]
struct Keeping {
    /// When it is due.
    next: Duration,
    /// The last time.
    thread: Option<Opening<()>>,
}

/// Who is killed loses what jobs have corrected in so much time.
const KEEP_EVERY: Duration = Duration::from_secs(5 * 60);

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
        let next = idle.now() + KEEP_EVERY;
        let keeping = Mutex::new(Keeping { next, thread: None });
        Some(Self {
            opening,
            idle,
            keeping,
        })
    }

    /// A job has ended: if that is due, what jobs have corrected is kept, by a thread of its own.
    pub fn job_ended(&self) {
        let now = self.idle.now();
        let mut keeping = self.keeping();
        let is_under_way = (keeping.thread.as_ref()).is_some_and(|thread| thread.get().is_none());
        if now < keeping.next || is_under_way || self.get().is_none() {
            return;
        }
        keeping.next = now + KEEP_EVERY;
        let opened = self.opening.later();
        keeping.thread = Some(Opening::start(move || {
            if let Some(Ok(model)) = opened.get() {
                model.keep();
            }
            Ok(())
        }));
    }

    fn keeping(&self) -> MutexGuard<'_, Keeping> {
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
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
        // It would write older rates over these.
        drop(self.keeping().thread.take());
        // The thread may be RocksDB's, and who hears that something cannot be kept the application's.
        let _ = catch_unwind(AssertUnwindSafe(|| self.get().map(Model::keep)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rockmill_cuda::{CudaSettings, Target};

    use super::*;
    use crate::clock::{Clock, SystemClock, VirtualClock};
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
    fn what_jobs_correct_is_kept_now_and_then_while_others_follow() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.json");
        keep_rates_of_kernels(&path);
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let fleet = Fleet::open(KERNELS.into(), CudaSettings::default(), &clock);
        let idle = Arc::new(Idle::new(Arc::clone(&clock)));
        let calibration = Calibration::KeptAt(path.clone());
        let calibrated = Calibrated::start(calibration, fleet.gpus(), &idle).expect("a GPU");
        calibrated.wait();
        let kept = || std::fs::read_to_string(&path).expect("it is there");
        let job = || {
            let model = calibrated.get().expect("it has rates");
            let took = SliceTime {
                seconds: 1e3,
                cpu_seconds: 1e3,
            };
            model.observed("cpu", &large(), 0, took);
            calibrated.job_ended();
            if let Some(thread) = &calibrated.keeping().thread {
                let _ = thread.wait();
            }
            kept()
        };
        let first = kept();
        assert_eq!(job(), first, "it is not due");
        clock.pause(KEEP_EVERY);
        let second = job();
        assert_ne!(second, first);
        assert_eq!(job(), second, "it is not due again");
        clock.pause(KEEP_EVERY);
        assert_ne!(job(), second);
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
