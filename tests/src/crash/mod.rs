//! Killing a process that writes to a database while Rockmill compacts it, and what must hold then.
//!
//! * [`script`] says what writers write: a batch is a function of seed, writer and number.
//! * [`shape`] is how the database of a seed looks.
//! * [`writer`] is the process that is killed, [`device`] what it compacts with.
//! * [`watch`] is the storage under its service, which sees the steps of each job and can stop at one.
//! * [`progress`] is the file in which it keeps what it has done, for whoever kills it.
//! * [`kill`] starts it as a [`process`] and kills it, at a [`moment`] that the seed draws.
//! * [`check`] looks at what is left, [`summary`] counts.
//! * [`campaign`] is as many kills as environment variables ask for.
//!
//! `src/bin/crash.rs` is the door to the first and to the last, so one program is all that a machine without cargo needs.
//!
//! A killed process loses nothing that it gave to the system, so every batch that was acknowledged must be
//! there afterwards, also without a sync. What a machine loses when its power fails is simulated in
//! `crates/compaction/tests/simulation`.

pub mod campaign;
pub mod check;
pub mod device;
pub mod kill;
pub mod moment;
pub mod process;
pub mod progress;
pub mod script;
pub mod shape;
pub mod summary;
pub mod watch;
pub mod writer;
