//! Files of jobs: the storage trait, the local file system, and the transfer of bytes between files and subcompactions.
//!
//! | Module        | Contents                                                                                    |
//! |---------------|---------------------------------------------------------------------------------------------|
//! | `files`       | [`Storage`]: the file system as a trait, so that tests can make any call fail               |
//! | `io`          | `JobIo`: a job's inputs and outputs, buffered or direct, measured and rate-limited          |
//! | `descriptors` | `Descriptors`: the limit on open files over all jobs                                        |
//! | `syncs`       | `Syncs`: syncs that stop being waited for when the database closes                          |
//! | `clock`       | `Clock`: the time in which threads wait, which tests replace                                |

#![forbid(unsafe_code)]

pub mod clock;
pub mod descriptors;
pub mod files;
pub mod io;
pub mod syncs;

pub use files::direct;
pub use files::{
    Advice, FILE_MODE, FolderId, InputFileReader, LocalStorage, ReadableFile, Rooted, Storage,
    WritableFile, base_name, for_each_piece, is_backup, read_from, shared_files, shared_path,
    table_path,
};
