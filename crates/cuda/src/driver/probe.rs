//! Whether this build's kernels run on a device.

use std::ffi::c_int;
use std::ptr;

use rockmill_core::Result;

use super::device::{Device, DeviceProperties, Target, unusable};
use super::stream::{Event, Stream};

/// The driver has no code for such a device (`cudaErrorNoKernelImageForDevice`).
const NO_CODE: c_int = 209;

impl Device {
    /// Opens a device. On a GPU this creates its context, which takes some tenths of a second.
    ///
    /// # Errors
    /// Device, with a sentence that names what is missing.
    pub fn open(target: Target) -> Result<Self> {
        let number = match target {
            Target::Cuda(number) => number,
            Target::Host | Target::Faulty => 0,
        };
        let device = Self::find(target, number)?;
        device.probe()?;
        Ok(device)
    }

    /// Checks that the context works, without waiting for kernels.
    ///
    /// # Errors
    /// Device if an earlier failure has made it unusable.
    pub fn check_context(&self) -> Result<()> {
        let _current = self.make_current()?;
        Event::new(self).map(drop)
    }

    /// Runs a kernel that does nothing, because a build has code for only some kinds of GPU.
    ///
    /// # Errors
    /// Device, with a sentence that names what is missing.
    pub fn probe(&self) -> Result<()> {
        let _current = self.make_current()?;
        let stream = Stream::new(self)?;
        let code = stream.stages(ptr::null_mut(), 0).probe();
        let DeviceProperties {
            name,
            compute_capability: (major, minor),
            ..
        } = self.properties();
        if code == NO_CODE {
            return Err(unusable(format!(
                "this build has no code for {name}, of compute capability {major}.{minor}; \
                 build with ROCKMILL_CUDA_ARCH={major}{minor}, or without it for all kinds"
            )));
        }
        self.check(code, &format!("run this build's kernels on {name}"))?;
        stream.synchronize()
    }
}
