//! The types that backends and engine share.
//!
//! A [`Job`] is one compaction as a value: together with the input files it determines every output byte. The engine
//! turns it into a [`Plan`] (which entries survive, what to write) and splits it into [`Subcompaction`]s. Each becomes
//! a [`Request`] to a [`Backend`] to read tables and to apply an [`Operator`] to the rows.
//!
//! ```text
//!   Job + inputs --plan--> Plan, Subcompaction ..                            engine
//!   Request --read--> Rows --apply(Operator)--> TaskReport           backend
//! ```

#![forbid(unsafe_code)]

mod backend;
mod block_stream;
mod blocks;
pub mod borders;
mod cancel;
mod checked_order;
mod collector;
pub mod columns;
mod comparators;
mod contents;
mod cpu_time;
mod decline;
mod error;
mod estimate;
mod file_identity;
mod filter_parts;
mod fragments;
mod hash;
mod io;
mod job;
mod keys;
mod lock;
mod merge_operators;
mod merging;
mod panic_message;
mod plan;
mod plugins;
mod progress;
mod range_tombstones;
mod report;
mod request;
mod row;
pub mod scan;
mod sst_file;
mod table;

pub use backend::{Backend, Operator, ResidentTable};
pub use block_stream::BlockStream;
pub use blocks::read_block;
pub use cancel::CancelToken;
pub use checked_order::{CheckedOrder, KeyChain};
pub use collector::{CompactOnDeletion, DeletionCounts, DeletionWindow};
pub use comparators::{Comparators, Compare, CustomComparator, TIMESTAMP_SUFFIX};
pub use contents::{BlockContext, Contents, ContentsReader};
pub use cpu_time::thread_cpu;
pub use decline::DeclineReason;
pub use error::{Error, ErrorKind, Result};
pub use estimate::FileEstimate;
pub use file_identity::{Cacheable, CachedOutput, FileIdentity};
pub use filter_parts::{FilterPart, filter_parts, parts_of};
pub use fragments::{Fragment, FragmentSizes, Fragments};
pub use hash::{ContentHash, entry_hash, index_hash, kv_hash, placed_hash};
pub use io::{Borrower, Chunk, LeasedBytes, Memory, ReadAt, ReadStream, SstFile, SstSink};
pub use job::{
    FileSummary, Hints, Identity, InputFile, JOB_VERSION, Job, JobInfo, LevelSummary, TreeState,
};
pub use keys::{KeyFault, KeyRestorer, RestoredKey, key_prefix, prefix_mask};
pub use lock::Lock;
pub use merge_operators::{MergeOperator, MergeOperators, StatedOperator};
pub use merging::{MAX_MADE_BYTES, Merging};
pub use panic_message::panic_message;
pub use plan::{
    CompactionRules, DeeperLevels, FilterPlan, Grandparent, KeyRange, OutputPlan, OutputSplitting,
    Plan, PropertiesPlan, Subcompaction, TablePlan,
};
/// Prefix extractors of an application.
pub use rockmill_format::prefix::{CustomPrefixes, Prefixes};

pub use plugins::{
    Attached, Collected, Collector, CollectorFactory, CompactionFilter, CreateFilter,
    CustomCollectors, CustomMerge, Decision, FilteredKind, JobFilter, MAX_PROPERTY_BYTES,
    MergeFunctions, Plugins,
};
pub use progress::Progress;
pub use range_tombstones::range_tombstones;
pub use report::{
    BatchOutput, Output, OutputFile, ReadReport, Resource, RowOutput, SizeSample, SstOutput,
    StageTime, TaskReport,
};
pub use request::{
    Footprint, NeedsMerge, Purpose, ReadTask, Reading, Request, SnapshotRules, Support, Tombstones,
    Unsupported, Visibility,
};
pub use row::{EntryKind, Row, RowSink};
pub use sst_file::{
    BlockWriter, BuiltIndex, FileBody, FileCounts, FilterBlock, IndexBlock, block_guard, bounds,
};
pub use table::{InputTable, describe_table, open_known_table, open_table, open_table_in};
