//! A machine's storage in memory, which fails and crashes as a test plans, and small databases on it.

#![allow(dead_code, reason = "each test uses a part of this")]

pub mod database;
pub mod disk;
pub mod family;
pub mod fault;
pub mod storage;
#[path = "../../../cpu/tests/common/tables/mod.rs"]
pub mod tables;
