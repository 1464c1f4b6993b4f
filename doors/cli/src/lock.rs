//! Checks whether a database is in use.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Message for a database that another process has open.
pub const IN_USE: &str = "another process has the database open";

/// Whether another process holds the database's LOCK. RocksDB would notice that too, but only after it has renamed the
/// other process's LOG.
///
/// # Errors
/// Errors of opening LOCK, unless it is missing, as in a copy.
pub fn in_use(dir: &Path) -> io::Result<bool> {
    let lock = match File::open(dir.join("LOCK")) {
        Ok(lock) => lock,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    let held = fcntl_getlk(&lock, &Flock::from(FlockType::WriteLock))?;
    Ok(held.is_some())
}
