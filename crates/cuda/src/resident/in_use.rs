//! Keeps what kernels on the caller's streams use until they are done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::Result;

use super::lookup::CallerStream;
use crate::driver::{Device, Event};

/// Values that kernels on streams of the caller use. Nobody waits for these kernels.
#[derive(Debug)]
pub struct InUse<T> {
    device: Device,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// In the order in which they came. One that is done waits for those in front of it.
    kept: VecDeque<(Event, Arc<T>)>,
    /// Whose kernels are done.
    done: Vec<Arc<T>>,
    /// Whose end is unknown.
    unknown: Vec<Arc<T>>,
    spare: Vec<Event>,
}

impl<T> InUse<T> {
    /// Nothing is in use on this device.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            state: Mutex::new(State {
                kept: VecDeque::new(),
                done: Vec::new(),
                unknown: Vec::new(),
                spare: Vec::new(),
            }),
        }
    }

    /// Keeps a value until a stream has come to where it is now. Returns whether that will be known: not if the stream is
    /// being captured into a graph. Waits for nothing, and gives nothing back to the device.
    ///
    /// # Errors
    /// Device. The value is kept for good then.
    pub fn keep(&self, value: &Arc<T>, stream: CallerStream) -> Result<bool> {
        let kept = self.try_keep(value, stream);
        if kept.is_err() {
            self.keep_for_good(value);
        }
        kept
    }

    fn try_keep(&self, value: &Arc<T>, stream: CallerStream) -> Result<bool> {
        let _current = self.device.make_current()?;
        // SAFETY: the code that made the stream has stated that it is one of the device.
        if unsafe { self.device.captures(stream.as_ptr()) }? {
            return Ok(false);
        }
        let mut state = self.state();
        state.sweep();
        let event = state.event(&self.device)?;
        // SAFETY: as above.
        unsafe { event.record_behind(stream.as_ptr()) }?;
        state.kept.push_back((event, Arc::clone(value)));
        Ok(true)
    }

    /// Keeps a value for as long as this lives.
    pub fn keep_for_good(&self, value: &Arc<T>) {
        self.state().unknown.push(Arc::clone(value));
    }

    /// Takes the values that only this has any more, and whose kernels are done.
    pub fn take_done(&self) -> Vec<Arc<T>> {
        let Ok(_current) = self.device.make_current() else {
            return Vec::new();
        };
        let mut state = self.state();
        state.sweep();
        std::mem::take(&mut state.done)
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn event(&mut self, device: &Device) -> Result<Event> {
        self.spare.pop().map_or_else(|| Event::new(device), Ok)
    }

    /// Finds the first ones whose kernels are done. An event that cannot be asked for is one of a lost device.
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
