//! Compactions call what was set through the crate `rocksdb`.

use rockmill_rocksdb::{Service, attach, attach_families};

#[path = "../../rockmill-attach/tests/attached/mod.rs"]
mod attached;
