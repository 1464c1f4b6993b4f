//! Kills a process that writes to a database while Rockmill compacts it, and checks the database afterwards.
//!
//! * [`script`] determines the writes: a batch is a function of seed, writer and number.
//! * [`shape`] determines the shape of the database of a seed.
//! * [`writer`] is the process that is killed; [`device`](crate::device) selects its device.
//! * [`watch`] is the storage under its service. It sees the steps of each job and can stop at one.
//! * [`progress`] is the file in which the process records its work for the parent.
//! * [`kill`] starts it as a [`process`] and kills it, at a [`moment`] drawn from the seed.
//! * [`check`] checks the remaining files, [`summary`] counts.
//! * [`campaign`] is a series of kills as set by environment variables.
//!
//! `src/bin/crash.rs` runs both the writer and the campaign, so a machine without cargo needs only one program.
//!
//! A killed process loses nothing that it passed to the system, so every acknowledged batch must be there afterwards,
//! even without a sync. `crates/compaction/tests/simulation` simulates power failures.

pub mod campaign;
pub mod check;
pub mod kill;
pub mod moment;
pub mod process;
pub mod progress;
pub mod script;
pub mod shape;
pub mod summary;
pub mod watch;
pub mod writer;
