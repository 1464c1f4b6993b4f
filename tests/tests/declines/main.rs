//! Rockmill leaves jobs to RocksDB that it cannot do exactly, with one test per reason. Each test shows that the jobs
//! were done locally, that the reason was counted, and that the content is right, before and after reopening. Further
//! tests cover near misses: configurations that resemble a reason and are supported.

mod compaction_filters;
mod comparators;
mod entries;
mod inputs;
mod options;
mod tables;
mod transactions;
mod trial;
