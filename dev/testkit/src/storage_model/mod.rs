//! A machine's storage in memory that fails and crashes as a test plans, and small databases on it.

#![allow(missing_docs, reason = "names of operations and plain records")]

pub mod database;
pub mod disk;
pub mod family;
pub mod fault;
pub mod storage;
