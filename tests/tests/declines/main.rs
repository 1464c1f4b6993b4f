//! What Rockmill does not do exactly, it leaves to RocksDB: one test for each reason. Each shows that
//! the jobs went local, with the reason counted, and that the database's content is right, before
//! and after it is opened again. Beside them stand the near misses: what looks like a reason and is
//! none.

mod compaction_filters;
mod comparators;
mod entries;
mod inputs;
mod options;
mod tables;
mod transactions;
mod trial;
