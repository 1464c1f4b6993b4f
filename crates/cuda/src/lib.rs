//! The GPU backend: every stage of a slice on the device, where values move once.
//!
//! ```text
//!   input files --load--> arena --decode--> keys, value places, hashes      input.rs, stages.rs
//!                               --merge---> one order
//!                               --retain--> survivors                       = Run, resident
//!                               --layout--> files, blocks, sizes
//!                               --encode--> images of the files             output.rs
//!                               --verify--> decoded again, compared
//!   SstSink <--store-- pinned chunks <-- images
//! ```
//!
//! The stages are those of `kernels/`, compiled for CUDA devices and, always, for the host, where the
//! same bodies run one item after another: so they are tested without a GPU. Three storeys keep unsafe
//! code small: [`ffi`](self) word for word, `device` with every error code looked at, and safe types above.
//!
//! What this backend does not do it refuses with [`rockmill_core::ErrorKind::Device`] before anything is
//! written: compression, and `target_file_size_is_upper_bound`, which asks of each entry what came of all before it.

mod backend;
mod buffer;
mod chain;
mod device;
mod extent;
#[doc(hidden)]
pub mod faults;
mod ffi;
mod images;
mod index;
mod input;
mod lane;
mod layout;
mod limits;
mod link;
mod memory;
mod output;
mod parts;
mod pool;
mod regions;
mod reserve;
mod stages;
mod store;
mod stream;
mod timing;
mod verify;
mod workspace;

pub use backend::{CudaBackend, CudaRun};
pub use device::{About, Device, Target};
pub use link::LinkRates;

/// How the backend uses host and device.
#[derive(Debug, Clone, Copy)]
pub struct CudaSettings {
    /// Device memory that slices hold at most, bytes; four fifths of what is free at the start if nothing is
    /// said. A slice waits for all that it needs, and one that needs more is left to another backend.
    pub memory_bytes: Option<u64>,
    /// Pinned host memory through which files go to the device and back, at most, bytes, but at least that of
    /// one thread; that of a quarter more threads than there are processors if nothing is said.
    pub pinned_bytes: Option<u64>,
    /// Bytes that are copied at a time, to the device and back.
    pub chunk_bytes: usize,
    /// Threads of a slice that read its input.
    pub io_threads: usize,
}

impl Default for CudaSettings {
    fn default() -> Self {
        const CHUNK_BYTES: usize = 1 << 20;
        const IO_THREADS: usize = 3;
        Self {
            memory_bytes: None,
            pinned_bytes: None,
            chunk_bytes: CHUNK_BYTES,
            io_threads: IO_THREADS,
        }
    }
}
