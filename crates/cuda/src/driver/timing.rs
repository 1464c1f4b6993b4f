//! Measures the times of a task's stages.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rockmill_core::{Resource, Result, StageTime, thread_cpu};

use super::device::Device;
use super::stream::{Event, Stream};

/// Stage times that several threads add to.
#[derive(Debug, Default)]
pub struct Stages(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    stages: Vec<StageTime>,
    cpu: Duration,
}

impl Stages {
    /// Adds to a stage, which is listed where it was first added to.
    pub fn add(&self, stage: &'static str, resource: Resource, seconds: f64, bytes: u64) {
        let time = StageTime {
            stage,
            resource,
            seconds,
            bytes,
        };
        StageTime::add_all(&mut self.lock().stages, &[time]);
    }

    /// Runs `work` and adds the time it took on the calling thread.
    pub fn time<T>(
        &self,
        stage: &'static str,
        resource: Resource,
        bytes: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let started = Instant::now();
        let done = work()?;
        self.add(stage, resource, started.elapsed().as_secs_f64(), bytes);
        Ok(done)
    }

    /// Runs `work`, all that a thread is there for, and counts the thread's processor time.
    pub fn count_cpu<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let done = work();
        self.lock().cpu += thread_cpu().saturating_sub(before);
        done
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All stages, and the processor time of other threads than the caller's.
    pub fn take(&self) -> (Vec<StageTime>, Duration) {
        let sums = std::mem::take(&mut *self.lock());
        (sums.stages, sums.cpu)
    }
}

/// Marks in a stream between the stages that run on the device.
#[derive(Debug)]
pub struct Marks {
    events: Vec<Event>,
    /// Name and bytes of the stage that ends at each mark but the first; `None` if the device waited for the host.
    stages: Vec<Option<(&'static str, u64)>>,
}

impl Marks {
    /// Begins at the stream's present end.
    pub fn start(device: &Device, stream: &Stream) -> Result<Self> {
        let event = Event::new(device)?;
        event.record(stream)?;
        Ok(Self {
            events: vec![event],
            stages: Vec::new(),
        })
    }

    /// Ends a stage that moved `bytes` through device memory.
    pub fn end(
        &mut self,
        device: &Device,
        stream: &Stream,
        stage: &'static str,
        bytes: u64,
    ) -> Result<()> {
        self.mark(device, stream, Some((stage, bytes)))
    }

    /// Ends a time in which the device waited for the host.
    pub fn end_wait(&mut self, device: &Device, stream: &Stream) -> Result<()> {
        self.mark(device, stream, None)
    }

    fn mark(
        &mut self,
        device: &Device,
        stream: &Stream,
        stage: Option<(&'static str, u64)>,
    ) -> Result<()> {
        let event = Event::new(device)?;
        event.record(stream)?;
        self.events.push(event);
        self.stages.push(stage);
        Ok(())
    }

    /// Adds all stages; the stream has passed the last mark.
    pub fn add_to(&self, stages: &Stages) -> Result<()> {
        for (pair, &stage) in self.events.windows(2).zip(&self.stages) {
            let Some((stage, bytes)) = stage else {
                continue;
            };
            let seconds = pair[1].seconds_since(&pair[0])?;
            stages.add(stage, Resource::Device, seconds, bytes);
        }
        Ok(())
    }
}
