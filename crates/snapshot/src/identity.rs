//! The IDENTITY file of a database.

use std::io;
use std::path::Path;

use rockmill_core::Result;
use rockmill_storage::{Storage, read_from};

/// Returns the contents of the IDENTITY file without the trailing newline; empty if there is no such file
/// (`db_impl.cc:GetDbIdentityFromIdentityFile`).
///
/// # Errors
/// Storage if it cannot be read.
pub fn identity(storage: &dyn Storage, dir: &Path) -> Result<Vec<u8>> {
    const LONGEST: u64 = 4096;
    let path = dir.join("IDENTITY");
    match storage.open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => drop(opened),
    }
    let mut id = read_from(storage, &path, 0, LONGEST)?;
    if id.last() == Some(&b'\n') {
        id.pop();
    }
    Ok(id)
}
