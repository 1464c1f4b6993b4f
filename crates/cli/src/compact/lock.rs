//! Checks whether a database is in use.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::refusal::Refusal;

/// Returns a refusal if another process holds the database's LOCK. RocksDB would notice that too, but only after it has
/// renamed the other process's LOG.
pub fn in_use(dir: &Path) -> Option<Refusal> {
    let looked = match File::open(dir.join("LOCK")) {
        Ok(lock) => fcntl_getlk(&lock, &Flock::from(FlockType::WriteLock)).map_err(io::Error::from),
        // A copy may have no LOCK file.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => Err(e),
    };
    match looked {
        Ok(None) => None,
        Ok(Some(_)) => Some(Refusal::environment(
            "another process has the database open",
            "close it there, or compact it from there",
        )),
        Err(e) => Some(Refusal::environment(
            format!("cannot look at LOCK: {e}"),
            "run this as the user that owns the database",
        )),
    }
}
