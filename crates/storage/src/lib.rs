//! Files of jobs: the storage trait and the local file system behind it, and how bytes flow between files and subcompactions.
//!
//! ```text
//!   Storage, files    files        one trait, so that tests can fail any call
//!   JobIo             io           inputs and outputs of a job, through the page cache or past it, measured and limited
//!   Descriptors       descriptors  how many files are open at once, over all jobs
//!   Syncs             syncs        syncs that nobody waits for once a database closes
//!   Clock             clock        time, as far as anything waits for it
//! ```

#![forbid(unsafe_code)]

pub mod clock;
pub mod descriptors;
pub mod files;
pub mod io;
pub mod syncs;

pub use files::direct;
pub use files::{
    Advice, FILE_MODE, FolderId, InputFileReader, LocalStorage, ReadableFile, Storage,
    WritableFile, base_name, for_each_piece, read_from,
};
