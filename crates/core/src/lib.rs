//! The nouns that backends and engine share.
//!
//! A [`Job`] is one compaction as a value: with the input files it determines every output byte. The
//! engine turns it into a [`Plan`] (what to write, by which rules) and cuts it into [`Slice`]s. A
//! [`Backend`] turns a slice into survivors and writes them as SST files through an [`SstSink`].
//!
//! ```text
//!   Job + inputs --plan--> Plan, Slice ..        engine
//!   Slice --survivors--> Run --write_ssts--> OutputFile ..        backend
//! ```

#![forbid(unsafe_code)]

mod backend;
mod block_stream;
mod cancel;
mod contents;
mod cpu_time;
mod decline;
mod error;
mod estimate;
mod io;
mod job;
mod keys;
mod plan;
mod progress;
mod sst_file;
mod table;

pub use backend::{
    Backend, ContentHash, OutputFile, Resource, SliceReport, SliceWork, StageTime, entry_hash,
    index_hash, kv_hash, placed_hash,
};
pub use block_stream::BlockStream;
pub use cancel::CancelToken;
pub use contents::{BlockPlace, Contents, ContentsReader};
pub use cpu_time::thread_cpu;
pub use decline::DeclineReason;
pub use error::{Error, ErrorKind, Result};
pub use estimate::FileEstimate;
pub use io::{Borrower, Chunk, Lent, Memory, ReadAt, ReadStream, SstFile, SstSink};
pub use job::{
    FileSummary, Hints, Identity, InputFile, JOB_VERSION, Job, JobInfo, LevelSummary, TreeView,
};
pub use keys::{KeyFault, KeyRestorer, RestoredKey, key_prefix};
pub use plan::{
    Cutting, FilterPlan, Grandparent, KeyRange, Plan, PropertiesPlan, RangesBeneath, Rules, Slice,
    TablePlan,
};
pub use progress::Progress;
pub use sst_file::{
    BlockWriter, FileBody, FileCounts, FilterBlock, IndexBlock, WrittenIndex, block_guard,
};
pub use table::{InputTable, open_known_table, open_table};
