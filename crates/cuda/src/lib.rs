//! The GPU backend: every stage of a task runs on the device, and values move once.
//!
//! ```text
//!   input files --load--> arena --decode--> keys, value places, hashes      read
//!                               --merge---> one order
//!                               --retain--> what a compaction keeps, or
//!                               --see-----> what a snapshot sees            = Rows, resident
//!                               --layout--> files, blocks, sizes            sst
//!                               --encode--> images of the files
//!                               --verify--> decoded again, compared
//!   SstSink <--store-- pinned chunks <-- images
//!   RowSink <--------- pieces <--------- rows                               inspect
//!   BatchSink <------- batches <-------- columns of what a program wants    scan
//!   DeviceTable <----- records <-------- rows                               resident
//! ```
//!
//! The stages are those of `kernels/`, compiled for CUDA devices and, always, for the host, where the same bodies run
//! sequentially: so they are tested without a GPU. Each module uses only those below it:
//!
//! ```text
//!   backend    the trait, and what a task takes
//!   sst, inspect, scan, resident    operators
//!   ring       requests of kernels to the host
//!   read       tables to rows
//!   cache      data blocks of files that stay on the device
//!   memory     what tasks share and reserve: device memory, rings of pinned chunks, streams
//!   driver     calls whose error codes are looked at, over `ffi`, which `make boundary` writes from the headers of
//!              `kernels/`
//! ```
//!
//! This backend refuses unsupported requests before anything is read ([`rockmill_core::Unsupported`]): some
//! compression, and `target_file_size_is_upper_bound`, which depends for each entry on all before it.

mod backend;
mod cache;
mod driver;
mod inspect;
mod memory;
mod read;
mod resident;
mod ring;
mod scan;
mod settings;
mod sst;
mod support;

pub use backend::CudaBackend;
pub use cache::FileCache;
#[doc(hidden)]
pub use driver::faults;
pub use driver::{
    CopyKind, Device, DeviceMemory, DeviceProperties, LinkRates, MemoryShares, MemoryUser,
    PinnedBuffer, Reservation, Stream, Target, answer_kernels,
};
pub use resident::{
    CallerStream, Delta, DeviceTable, IdForm, InUse, Integer, Keys, LookupResult, Rows,
    TableContents, TableSettings, Unanswered, Unseen,
};
pub use ring::{
    ChangedSet, KvRecord, Operation, Request, RequestQueue, RingPin, RingSettings, Server, Status,
};
pub use settings::CudaSettings;

/// The version of the CUDA compiler and runtime in this build, such as `13.0`; `None` without the GPU backend.
pub const CUDA_VERSION: Option<&str> = option_env!("ROCKMILL_CUDA_VERSION");
