//! Keeps values alive until kernels on the caller's streams have used them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{Lock, Result};

use super::lookup::CallerStream;
use crate::driver::{Device, Event};

/// Values that kernels on streams of the caller use. No thread waits for these kernels.
#[derive(Debug)]
pub struct InUse<T> {
    device: Device,
    state: Lock<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// In order of arrival. A value whose kernels are done waits for those in front of it.
    kept: VecDeque<(Event, Arc<T>)>,
    /// Number of values that were ever in `kept`.
    num_kept: u64,
    /// Values whose kernels are done.
    done: Vec<Arc<T>>,
    /// Values whose kernels' end is unknown.
    unknown: Vec<Arc<T>>,
    spare: Vec<Event>,
}

impl<T> InUse<T> {
    /// Nothing is in use on this device.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            state: Lock::new(State {
                kept: VecDeque::new(),
                num_kept: 0,
                done: Vec::new(),
                unknown: Vec::new(),
                spare: Vec::new(),
            }),
        }
    }

    /// Keeps a value until a stream has reached its current end. Returns whether that can be found out: not if the
    /// stream is being captured into a graph. Does not wait, and frees no device memory.
    ///
    /// # Errors
    /// Device. The value is then kept forever.
    pub fn keep(&self, value: &Arc<T>, stream: CallerStream) -> Result<bool> {
        let kept = self.try_keep(value, stream);
        if kept.is_err() {
            self.keep_until_drop(value);
        }
        kept
    }

    fn try_keep(&self, value: &Arc<T>, stream: CallerStream) -> Result<bool> {
        let _current = self.device.make_current()?;
        // SAFETY: the creator of the stream has stated that it is one of the device.
        if unsafe { self.device.captures(stream.as_ptr()) }? {
            return Ok(false);
        }
        let mut state = self.state.lock();
        state.sweep();
        let event = state.event(&self.device)?;
        // SAFETY: as above.
        unsafe { event.record_behind(stream.as_ptr()) }?;
        state.kept.push_back((event, Arc::clone(value)));
        state.num_kept += 1;
        Ok(true)
    }

    /// Keeps a value for as long as `self` lives.
    pub fn keep_until_drop(&self, value: &Arc<T>) {
        self.state.lock().unknown.push(Arc::clone(value));
    }

    /// Waits until the streams have reached the ends for which values were kept so far.
    ///
    /// # Errors
    /// Device.
    pub fn wait(&self) -> Result<()> {
        /// Pause between two looks at the events.
        const PAUSE: Duration = Duration::from_micros(20);
        let _current = self.device.make_current()?;
        let end = self.state.lock().num_kept;
        loop {
            let mut state = self.state.lock();
            state.sweep();
            let num_done = state.num_kept - state.kept.len() as u64;
            match state.kept.front() {
                // The error is that of a lost device, for which there is no end to wait for.
                Some((event, _)) if num_done < end => event.is_done()?,
                _ => return Ok(()),
            };
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes the values that only `self` still refers to, and whose kernels are done.
    pub fn take_done(&self) -> Vec<Arc<T>> {
        let Ok(_current) = self.device.make_current() else {
            return Vec::new();
        };
        let mut state = self.state.lock();
        state.sweep();
        std::mem::take(&mut state.done)
    }
}

impl<T> State<T> {
    fn event(&mut self, device: &Device) -> Result<Event> {
        self.spare.pop().map_or_else(|| Event::new(device), Ok)
    }

    /// Finds the first ones whose kernels are done. An event that cannot be queried belongs to a lost device.
    fn sweep(&mut self) {
        while let Some((event, _)) = self.kept.front()
            && event.is_done().unwrap_or(false)
            && let Some((event, value)) = self.kept.pop_front()
        {
            self.spare.push(event);
            if Arc::strong_count(&value) == 1 {
                self.done.push(value);
            }
        }
    }
}
