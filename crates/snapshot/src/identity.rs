//! The identity of a database.

use std::io;
use std::path::Path;

use rockmill_core::{Error, Result};
use rockmill_storage::{FolderId, Storage, base_name, read_from};

/// Tells a database from another one that has taken its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseIdentity {
    /// Its id, as IDENTITY or the MANIFEST has it. Copies of a database have the same.
    pub id: Vec<u8>,
    /// Its folder. A later one may have the same number.
    pub folder: FolderId,
}

impl DatabaseIdentity {
    /// Reads the IDENTITY file and the number of the folder.
    ///
    /// # Errors
    /// Storage if one of them cannot be read.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let folder = storage.folder_id(dir);
        Ok(Self {
            folder: folder.map_err(|e| Error::storage(&base_name(dir), "find it", &e))?,
            id: identity(storage, dir)?,
        })
    }
}

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
