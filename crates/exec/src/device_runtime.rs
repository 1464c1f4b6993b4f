//! Open devices. A process opens each GPU once: all engines and views that use it share its context, its memory, its pinned
//! buffers and its health.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rockmill_core::{CancelToken, DynBackend, Error, ErrorKind, Result};
use rockmill_cuda::{CudaBackend, CudaSettings, Device as Gpu, Reservation, Target};
use rockmill_storage::clock::Clock;

use crate::device::Registered;
use crate::device_health::DeviceHealth;

/// An open device.
#[derive(Debug)]
pub struct DeviceRuntime {
    /// Its backend.
    pub backend: Arc<dyn DynBackend>,
    /// Its health over all jobs.
    pub health: DeviceHealth,
    /// Its model name.
    pub(crate) model: String,
    /// The backend, if views can lie on the device.
    cuda: Option<Arc<CudaBackend>>,
}

/// A device that is open, or is being opened.
type Slot = Arc<Mutex<Weak<DeviceRuntime>>>;

/// The GPUs that have been used in this process.
static GPUS: Mutex<Vec<(Target, Slot)>> = Mutex::new(Vec::new());

fn slot(target: Target) -> Slot {
    let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, slot)) = gpus.iter().find(|(other, _)| *other == target) {
        return Arc::clone(slot);
    }
    let slot = Slot::default();
    gpus.push((target, Arc::clone(&slot)));
    slot
}

impl DeviceRuntime {
    /// Opens a GPU. If it is open in this process, returns that runtime. Then only the memory limit of `settings`
    /// applies: the smallest one since the GPU was opened. Kernels on the host have no separate memory, so each caller
    /// gets its own runtime there.
    ///
    /// # Errors
    /// Device.
    pub fn gpu(target: Target, settings: CudaSettings) -> Result<Arc<Self>> {
        Self::found_or_opened(target, settings, false)
    }

    fn found_or_opened(
        target: Target,
        settings: CudaSettings,
        warms_up: bool,
    ) -> Result<Arc<Self>> {
        if target == Target::Host {
            return Self::open(target, settings, warms_up);
        }
        let slot = slot(target);
        let mut open = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = open.upgrade() {
            if let (Some(cuda), Some(bytes)) = (&runtime.cuda, settings.memory_bytes) {
                cuda.limit_memory(bytes);
            }
            return Ok(runtime);
        }
        let runtime = Self::open(target, settings, warms_up)?;
        *open = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    fn open(target: Target, settings: CudaSettings, warms_up: bool) -> Result<Arc<Self>> {
        let backend = Arc::new(CudaBackend::new(target, settings)?);
        // Only here, where no other thread takes pinned buffers: this takes several at once.
        if let Some(Err(error)) = warms_up.then(|| backend.warm_up()) {
            // The first task reports this error if it needs as much memory.
            tracing::warn!(%error, "the GPU is open, but the memory that a task usually needs could not be allocated");
        }
        Ok(Arc::new(Self {
            model: backend.device().about().name.clone(),
            backend: Arc::clone(&backend) as _,
            health: DeviceHealth::default(),
            cuda: Some(backend),
        }))
    }

    /// Does the same as [`DeviceRuntime::gpu`]. If it opens the GPU, it allocates the memory that its first task would wait for.
    pub(crate) fn warm_gpu(target: Target, settings: CudaSettings) -> Result<Arc<Self>> {
        Self::found_or_opened(target, settings, true)
    }

    /// Opens a backend of the program itself.
    pub(crate) fn registered(
        registered: Registered,
        settings: CudaSettings,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            model: "registered".to_owned(),
            backend: registered.open(settings.memory_bytes, clock),
            health: DeviceHealth::default(),
            cuda: None,
        })
    }

    /// Opens the first usable GPU.
    pub(crate) fn first_gpu(settings: CudaSettings) -> Result<Arc<Self>> {
        let mut trouble = None;
        for gpu in Gpu::all_gpus()? {
            match Self::warm_gpu(Target::Cuda(gpu.number()), settings) {
                Ok(gpu) => return Ok(gpu),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        let none = || Error::new(ErrorKind::Device, "the machine has none");
        Err(trouble.unwrap_or_else(none))
    }

    /// The device on which views can lie.
    ///
    /// # Errors
    /// Device if it is another kind of device.
    pub fn gpu_device(&self) -> Result<&Gpu> {
        let cuda = self.cuda.as_ref();
        let none = || Error::new(ErrorKind::Device, "views lie on GPUs and on the host");
        cuda.map(|cuda| cuda.device()).ok_or_else(none)
    }

    /// Default device memory of a view in bytes: four fifths of the free memory, or the memory that tasks can free.
    ///
    /// # Errors
    /// Device.
    pub fn usual_view_bytes(&self) -> Result<u64> {
        let device = self.gpu_device()?;
        let bytes = device.shares().for_views(device)?;
        Ok(bytes.map_or(u64::MAX, |bytes| bytes / 5 * 4))
    }

    /// Reserves device memory for the load of a view, and waits until tasks have freed it. The tasks of the load take
    /// up to `task_bytes` each. If there is less than `bytes`, reserves all of it.
    ///
    /// # Errors
    /// Device, Cancelled.
    pub fn reserve(
        &self,
        bytes: u64,
        task_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Arc<Reservation>> {
        let device = self.gpu_device()?;
        let reservation = device.shares().reserve(device, bytes, task_bytes, cancel);
        reservation.map(Arc::new)
    }

    /// Whether a kernel that does nothing runs. For devices without kernels, whether they exist.
    pub fn works(&self) -> bool {
        (self.cuda.as_ref()).is_none_or(|cuda| cuda.device().probe().is_ok())
    }

    /// Frees memory of the device that no task uses.
    pub fn give_back_idle(&self) {
        if let Some(cuda) = &self.cuda {
            cuda.device().shares().take_idle(u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_once_in_a_process_and_the_least_stated_memory_counts() {
        let faults = rockmill_cuda::faults::Faults::none();
        faults.simulate_memory(1 << 30);
        let open = |memory_bytes| {
            let settings = CudaSettings {
                memory_bytes,
                ..CudaSettings::default()
            };
            DeviceRuntime::gpu(Target::Faulty, settings).expect("it opens")
        };
        let limit = |runtime: &DeviceRuntime| {
            let cuda = runtime.cuda.as_ref().expect("it has kernels");
            cuda.memory_bytes().1
        };
        let first = open(Some(800 << 20));
        let others = [None, Some(600 << 20), Some(700 << 20)].map(open);
        assert!(others.iter().all(|other| Arc::ptr_eq(other, &first)));
        assert_eq!(limit(&first), 600 << 20);
        drop((first, others));
        assert_eq!(faults.held(), rockmill_cuda::faults::Held::default());
        assert_eq!(limit(&open(None)), (1 << 30) / 5 * 4);
    }

    #[test]
    fn kernels_on_the_host_are_not_shared() {
        let open = || DeviceRuntime::gpu(Target::Host, CudaSettings::default()).expect("it opens");
        assert!(!Arc::ptr_eq(&open(), &open()));
    }
}
