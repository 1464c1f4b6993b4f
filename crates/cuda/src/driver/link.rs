//! How fast bytes get to a device and back.

use std::time::Instant;

use rockmill_core::{CancelToken, Result};

use super::device::Device;
use super::memory::{DeviceMemory, PinnedBuffer};
use super::shares::MemoryUser;
use super::stream::{CopyKind, Stream};

/// Enough that starting a copy does not count.
const COPY_BYTES: usize = 32 << 20;
const COPIES: usize = 4;
const ROUNDS: usize = 3;

/// Rates of the link between pinned host memory and a device, bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkRates {
    /// To the device.
    pub to_device: f64,
    /// Back.
    pub from_device: f64,
}

impl LinkRates {
    /// Copies for some hundredths of a second and takes the best of a few rounds, one direction at a time.
    ///
    /// # Errors
    /// Device, also if there is not enough memory; Cancelled.
    pub fn measure(device: &Device, cancel: &CancelToken) -> Result<Self> {
        let _current = device.make_current()?;
        let stream = Stream::new(device)?;
        let pinned = PinnedBuffer::new(device, COPY_BYTES)?;
        let memory = DeviceMemory::new(device, MemoryUser::Tasks, COPY_BYTES as u64)?;
        let (there, here) = (memory.as_ptr(), pinned.as_ptr());
        let done = best_rate(&stream, cancel, || {
            // SAFETY: source and target have `COPY_BYTES` bytes, live until the stream was waited for, and belong to
            // the calling thread alone.
            unsafe { stream.copy(CopyKind::ToDevice, there, here, COPY_BYTES) }
        })
        .and_then(|to_device| {
            // SAFETY: as above.
            let back = || unsafe { stream.copy(CopyKind::FromDevice, here, there, COPY_BYTES) };
            Ok(Self {
                to_device,
                from_device: best_rate(&stream, cancel, back)?,
            })
        });
        // Whatever went wrong, nothing may be on its way when the memory goes.
        stream.synchronize()?;
        done
    }
}

fn best_rate(stream: &Stream, cancel: &CancelToken, copy: impl Fn() -> Result<()>) -> Result<f64> {
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        cancel.check()?;
        let started = Instant::now();
        for _ in 0..COPIES {
            copy()?;
        }
        stream.synchronize()?;
        let bytes = (COPIES * COPY_BYTES) as f64;
        best = best.max(bytes / started.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::test_target;

    #[test]
    fn both_directions_have_a_rate() {
        let device = Device::open(test_target()).expect("it is there");
        let rates = LinkRates::measure(&device, &CancelToken::new()).expect("there is memory");
        assert!(rates.to_device > 0.0 && rates.from_device > 0.0);
    }
}
