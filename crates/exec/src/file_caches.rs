//! The caches of files of an engine's devices.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::kv_hash;
use rockmill_cuda::FileCache;

use crate::device_registry::DeviceRegistry;

/// The number of the database in a directory, for caches.
pub fn database_number(dir: &Path) -> u64 {
    let same = std::fs::canonicalize(dir);
    let path = same.as_deref().unwrap_or(dir);
    kv_hash(path.as_os_str().as_bytes(), b"")
}

impl DeviceRegistry {
    /// The caches that keep files.
    pub fn file_caches(&self) -> Vec<Arc<FileCache>> {
        let devices = self.runtimes().into_iter();
        let caches = devices.filter_map(|device| device.file_cache().cloned());
        caches.filter(|cache| cache.is_on()).collect()
    }

    /// The cache of each device that may keep files, with the device's name.
    pub fn named_file_caches(&self) -> Vec<(String, Arc<FileCache>)> {
        let devices = self.runtimes().into_iter();
        let named = devices.filter_map(|device| {
            let name = device.backend.name().to_owned();
            Some((name, Arc::clone(device.file_cache()?)))
        });
        named.collect()
    }

    /// Lets caches drop the files that a database no longer has. `files` are the unique ids of those that it has.
    pub fn database_has(&self, dir: &Path, files: impl Iterator<Item = [u64; 2]>) {
        let caches = self.file_caches();
        if caches.is_empty() {
            return;
        }
        let (database, files) = (database_number(dir), files.collect::<HashSet<_>>());
        for cache in caches {
            cache.look(database, &|id| files.contains(&id));
        }
    }
}
