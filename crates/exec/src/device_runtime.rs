//! Open devices. A process opens each GPU once: all engines and views that use it share its context, its memory, its pinned
//! buffers and its health.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rockmill_core::{Backend, CancelToken, Error, ErrorKind, Lock, Result};
use rockmill_cuda::{CudaBackend, CudaSettings, Device as Gpu, FileCache, Reservation, Target};
use rockmill_storage::clock::Clock;

use crate::device::Registered;
use crate::device_health::DeviceHealth;
use crate::dispatch::carried;

/// An open device.
#[derive(Debug)]
pub struct DeviceRuntime {
    /// Its backend.
    pub backend: Arc<dyn Backend>,
    /// Its health over all jobs.
    pub health: DeviceHealth,
    /// Its model name.
    pub(crate) model: String,
    /// The backend, if views can lie on the device.
    cuda: Option<Arc<CudaBackend>>,
    /// Memory limits of the engines that use the device, in bytes.
    limits: Lock<Vec<u64>>,
    /// Limits of its cache, one of each engine that uses the device.
    cache_limits: Lock<Vec<Option<u64>>>,
    freeing: Arc<Lock<Freeing>>,
}

/// The thread that frees device memory, and what it is to free. It is another one than its caller's: the device waits for all
/// kernels that run, and a kernel of the application may wait for the calling thread.
#[derive(Debug, Default)]
struct Freeing {
    /// Memory that no task uses.
    idle: bool,
    /// Memory of the cache beyond its limits.
    excess: bool,
    /// The last thread, and its process. A child process does not have its parent's threads.
    thread: Option<(u32, JoinHandle<()>)>,
    /// Whether the thread looks once more for what it is to free.
    is_working: bool,
}

/// A device that is open, or is being opened, and the process that opened it. A child process inherits no context.
type Slot = Arc<Lock<(u32, Weak<DeviceRuntime>)>>;

/// The GPUs that have been used in this process.
static GPUS: Lock<Vec<(Target, Slot)>> = Lock::new(Vec::new());

fn slot(target: Target) -> Slot {
    let mut gpus = GPUS.lock();
    if let Some((_, slot)) = gpus.iter().find(|(other, _)| *other == target) {
        return Arc::clone(slot);
    }
    let slot = Slot::default();
    gpus.push((target, Arc::clone(&slot)));
    slot
}

/// An open device of an engine. The engine's memory limit applies until this is dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    pub device: Arc<DeviceRuntime>,
    limit_bytes: Option<u64>,
    cache_bytes: Lock<Option<u64>>,
}

impl Opened {
    fn new(device: Arc<DeviceRuntime>, limit_bytes: Option<u64>, cache_bytes: Option<u64>) -> Self {
        if let Some(bytes) = limit_bytes {
            device.change_limits(|limits| limits.push(bytes));
        }
        device.change_cache_limits(|limits| limits.push(cache_bytes));
        Self {
            device,
            limit_bytes,
            cache_bytes: Lock::new(cache_bytes),
        }
    }

    /// Changes this engine's limit of the device's cache.
    pub fn limit_cache(&self, bytes: Option<u64>) {
        let mut own = self.cache_bytes.lock();
        if *own != bytes {
            self.device.change_cache_limits(|limits| {
                if let Some(limit) = limits.iter_mut().find(|limit| **limit == *own) {
                    *limit = bytes;
                }
            });
            *own = bytes;
        }
    }
}

impl From<Arc<DeviceRuntime>> for Opened {
    fn from(device: Arc<DeviceRuntime>) -> Self {
        Self::new(device, None, None)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let bytes = self.limit_bytes;
        self.device.change_limits(|limits| {
            let own = limits.iter().position(|limit| Some(*limit) == bytes);
            own.map(|own| limits.swap_remove(own));
        });
        let own = self.cache_bytes.get_mut();
        self.device.change_cache_limits(|limits| {
            if let Some(at) = limits.iter().position(|limit| limit == own) {
                limits.swap_remove(at);
            }
        });
    }
}

impl DeviceRuntime {
    /// Opens a GPU for a view. If it is open in this process, returns that runtime. Kernels on the host have no separate
    /// memory, so each caller gets its own runtime there.
    ///
    /// # Errors
    /// Device, also if an earlier failure has made the GPU unusable for this process.
    pub fn gpu(target: Target) -> Result<Arc<Self>> {
        Self::found_or_opened(target, CudaSettings::default(), false)
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
        let mut open = slot.lock();
        let process = std::process::id();
        if open.0 == process
            && let Some(runtime) = open.1.upgrade()
        {
            // A kernel that failed badly leaves an error in the context, which all later calls return.
            runtime.gpu_device()?.check_context()?;
            return Ok(runtime);
        }
        let runtime = Self::open(target, settings, warms_up)?;
        *open = (process, Arc::downgrade(&runtime));
        Ok(runtime)
    }

    fn open(target: Target, settings: CudaSettings, warms_up: bool) -> Result<Arc<Self>> {
        let backend = Arc::new(CudaBackend::new(target, settings)?);
        // Until an engine uses it.
        backend.cache().set_limit(0);
        // Only here, where no other thread takes pinned buffers: this takes several at once.
        if let Some(Err(error)) = warms_up.then(|| backend.warm_up()) {
            // The first task reports this error if it needs as much memory.
            tracing::warn!(%error, "the GPU is open, but the memory that a task usually needs could not be allocated");
        }
        Ok(Arc::new(Self {
            model: backend.device().properties().name.clone(),
            backend: Arc::clone(&backend) as _,
            health: DeviceHealth::default(),
            cuda: Some(backend),
            limits: Lock::default(),
            cache_limits: Lock::default(),
            freeing: Arc::default(),
        }))
    }

    /// Opens a GPU for an engine. If this process has not opened it yet, allocates the memory that its first task would
    /// wait for. The smallest memory limit of all engines that use the GPU applies.
    pub(crate) fn warm_gpu(target: Target, settings: CudaSettings) -> Result<Opened> {
        let device = Self::found_or_opened(target, settings, true)?;
        Ok(Opened::new(
            device,
            settings.memory_bytes,
            settings.cache_bytes,
        ))
    }

    /// Changes the memory limits of engines, and applies the smallest one.
    fn change_limits(&self, change: impl FnOnce(&mut Vec<u64>)) {
        let mut limits = self.limits.lock();
        let before = limits.iter().min().copied();
        change(&mut limits);
        let smallest = limits.iter().min().copied();
        if let Some(cuda) = self.cuda.as_ref().filter(|_| smallest != before) {
            cuda.limit_memory(smallest);
            self.free(|freeing| freeing.excess = true);
        }
    }

    /// Changes the limits of the cache, and applies the smallest one.
    fn change_cache_limits(&self, change: impl FnOnce(&mut Vec<Option<u64>>)) {
        let mut limits = self.cache_limits.lock();
        let smallest = |limits: &[Option<u64>]| limits.iter().copied().flatten().min();
        let before = smallest(&limits);
        change(&mut limits);
        let smallest = smallest(&limits);
        if let Some(cache) = self.file_cache().filter(|_| smallest != before) {
            cache.set_limit(smallest.unwrap_or(0));
            self.free(|freeing| freeing.excess = true);
        }
    }

    /// Files that stay on the device. `None` for devices without such a cache.
    pub fn file_cache(&self) -> Option<&Arc<FileCache>> {
        self.cuda.as_ref().map(|cuda| cuda.cache())
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
            limits: Lock::default(),
            cache_limits: Lock::default(),
            freeing: Arc::default(),
        })
    }

    /// Opens the first usable GPU.
    pub(crate) fn first_gpu(settings: CudaSettings) -> Result<Opened> {
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

    /// Frees memory of the device that no task uses, on another thread. Cached files stay, unless no engine uses the device.
    pub fn give_back_idle(&self) {
        self.free(|freeing| freeing.idle = true);
    }

    /// Lets the thread free memory, also what is asked for while it works.
    fn free(&self, ask: impl FnOnce(&mut Freeing)) {
        let Some(cuda) = self.cuda.clone() else {
            return;
        };
        let mut freeing = self.freeing.lock();
        ask(&mut freeing);
        if let Some(thread) = freeing.own_thread() {
            if freeing.is_working && !thread.is_finished() {
                freeing.thread = Some((std::process::id(), thread));
                return;
            }
            // It has nothing more to do, and must not be left behind inside the driver. Freeing memory does not panic.
            let _ = thread.join();
        }
        let shared = Arc::clone(&self.freeing);
        let work = move || {
            loop {
                let mut freeing = shared.lock();
                let idle = std::mem::take(&mut freeing.idle);
                let excess = std::mem::take(&mut freeing.excess);
                freeing.is_working = idle || excess;
                if !freeing.is_working {
                    return;
                }
                drop(freeing);
                if idle {
                    cuda.give_back_idle();
                }
                if excess {
                    cuda.trim();
                }
            }
        };
        let builder = std::thread::Builder::new().name("rockmill-free".to_owned());
        // Without a thread, later tasks find the memory.
        let spawned = builder.spawn(carried(work)).ok();
        freeing.is_working = spawned.is_some();
        freeing.thread = spawned.map(|thread| (std::process::id(), thread));
    }
}

impl Freeing {
    /// Takes the thread out, if it is one of this process.
    fn own_thread(&mut self) -> Option<JoinHandle<()>> {
        let (process, thread) = self.thread.take()?;
        (process == std::process::id()).then_some(thread)
    }
}

impl Drop for DeviceRuntime {
    /// Waits for the thread, so that none is inside the driver when the program ends.
    fn drop(&mut self) {
        let thread = self.freeing.lock().own_thread();
        // Freeing memory does not panic.
        thread.map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use rockmill_cuda::faults::{Call, DeviceUsage, Faults};

    use super::*;

    fn open(memory_bytes: Option<u64>) -> Opened {
        let settings = CudaSettings {
            memory_bytes,
            ..CudaSettings::default()
        };
        DeviceRuntime::warm_gpu(Target::Faulty, settings).expect("it opens")
    }

    fn limit(opened: &Opened) -> u64 {
        let cuda = opened.device.cuda.as_ref().expect("it has kernels");
        cuda.memory_bytes().1
    }

    #[test]
    fn a_device_is_opened_once_and_the_smallest_limit_of_open_engines_applies() {
        let faults = Faults::none();
        faults.simulate_memory(1 << 30);
        let usual = (1 << 30) / 5 * 4;
        let first = open(Some(800 << 20));
        assert_eq!(limit(&first), 800 << 20);
        let [unlimited, smallest, middle] = [None, Some(600 << 20), Some(700 << 20)].map(open);
        for other in [&unlimited, &smallest, &middle] {
            assert!(Arc::ptr_eq(&other.device, &first.device));
        }
        assert_eq!(limit(&first), 600 << 20);
        drop(smallest);
        assert_eq!(limit(&first), 700 << 20, "a closed engine limits no other");
        drop((first, middle));
        assert_eq!(limit(&unlimited), usual);
        drop(unlimited);
        assert_eq!(faults.usage(), DeviceUsage::default());
        assert_eq!(limit(&open(None)), usual);
    }

    #[test]
    fn a_device_that_has_broken_down_is_not_opened_again_beside_its_users() {
        let faults = Faults::none();
        let first = open(None);
        faults.break_down(Call::Event, 0);
        let error = DeviceRuntime::gpu(Target::Faulty).expect_err("all calls fail");
        assert_eq!(error.kind, ErrorKind::Device);
        drop(first);
    }

    #[test]
    fn idle_memory_is_freed_while_the_device_stays_open() {
        let faults = Faults::none();
        let first = open(None);
        let held = faults.usage().bytes;
        assert!(held > 0, "the memory of a first task");
        first.device.give_back_idle();
        while faults.usage().bytes == held {
            std::thread::yield_now();
        }
    }

    #[test]
    fn kernels_on_the_host_are_not_shared() {
        let open = || DeviceRuntime::gpu(Target::Host).expect("it opens");
        assert!(!Arc::ptr_eq(&open(), &open()));
    }
}
