//! Measures the times of a task's stages.

use std::time::{Duration, Instant};

use rockmill_core::{Error, Lock, Resource, Result, StageTime, thread_cpu};

use super::stream::Stream;

/// Stage times that several threads add to.
#[derive(Debug, Default)]
pub struct Stages(Lock<Sums>);

#[derive(Debug, Default)]
struct Sums {
    stages: Vec<StageTime>,
    cpu: Duration,
}

impl Stages {
    /// Adds to a stage. Stages are listed in the order of their first call.
    pub fn add(&self, stage: &'static str, resource: Resource, seconds: f64, bytes: u64) {
        let time = StageTime {
            stage,
            resource,
            seconds,
            bytes,
        };
        StageTime::add_all(&mut self.0.lock().stages, &[time]);
    }

    /// Runs `work` and adds its time on the calling thread.
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

    /// Runs `work`, the whole job of a thread, and counts the thread's processor time.
    fn count_cpu<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let done = work();
        self.0.lock().cpu += thread_cpu().saturating_sub(before);
        done
    }

    /// Runs `work` on the calling thread and on others, in all on `threads`, or on fewer if the system gives fewer. Returns an
    /// error of one of them.
    pub fn on_threads(
        &self,
        threads: usize,
        name: &str,
        work: impl Fn() -> Result<()> + Sync,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let start = |_| {
                let builder = std::thread::Builder::new().name(name.to_owned());
                let counted = || self.count_cpu(&work);
                builder.spawn_scoped(scope, counted).ok()
            };
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let done = work();
            others.into_iter().fold(done, |done, other| {
                let panicked = |_| Err(Error::internal("a thread of a task panicked"));
                done.and(other.join().unwrap_or_else(panicked))
            })
        })
    }

    /// All stages, and the processor time of threads other than the caller's.
    pub fn take(&self) -> (Vec<StageTime>, Duration) {
        let sums = std::mem::take(&mut *self.0.lock());
        (sums.stages, sums.cpu)
    }
}

/// Marks of a stream between the stages that run on the device. A stream has those of one task at a time.
#[derive(Debug)]
pub struct Marks {
    /// Name and bytes of the stage that ends at each mark except the first; `None` if the device waited for the host.
    stages: Vec<Option<(&'static str, u64)>>,
}

impl Marks {
    /// Begins at the stream's current end.
    pub fn start(stream: &Stream) -> Result<Self> {
        stream.mark(0)?;
        Ok(Self { stages: Vec::new() })
    }

    /// Ends a stage that moved `bytes` through device memory.
    pub fn end(&mut self, stream: &Stream, stage: &'static str, bytes: u64) -> Result<()> {
        self.mark(stream, Some((stage, bytes)))
    }

    /// Ends a time in which the device waited for the host.
    pub fn end_wait(&mut self, stream: &Stream) -> Result<()> {
        self.mark(stream, None)
    }

    fn mark(&mut self, stream: &Stream, stage: Option<(&'static str, u64)>) -> Result<()> {
        stream.mark(self.stages.len() + 1)?;
        self.stages.push(stage);
        Ok(())
    }

    /// Adds all stages. The stream has passed the last mark.
    pub fn add_to(&self, stages: &Stages, stream: &Stream) -> Result<()> {
        for (number, &stage) in self.stages.iter().enumerate() {
            if let Some((stage, bytes)) = stage {
                let seconds = stream.seconds_behind(number)?;
                stages.add(stage, Resource::Device, seconds, bytes);
            }
        }
        Ok(())
    }
}
