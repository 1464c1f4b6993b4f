//! Compactions call what was set through the crate `rust-rocksdb`.

extern crate rust_rocksdb as rocksdb;

use rockmill::Service;
use rockmill_attach::{attach, attach_families};

mod attached;
