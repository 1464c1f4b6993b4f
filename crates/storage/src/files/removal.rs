//! Removes a folder without waiting until the space of its files is freed.
//!
//! A file system frees a few gigabytes a second at best. A database that closes during a large job should not wait for
//! that. The space of an unlinked file is freed when its last descriptor is closed. So the names are removed at once,
//! and a separate thread closes the descriptors. That thread does not touch the database's folder.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Smallest file that is freed on the thread: freeing less takes no longer than starting a thread.
const LARGE_BYTES: u64 = 4 << 20;

/// Removes a folder with its contents. The space is freed soon afterwards.
///
/// # Errors
/// The operating system's error; NotFound if there is none.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    let held = large_files(path);
    let removed = fs::remove_dir_all(path);
    if !held.is_empty() {
        // If no thread can be started, dropping the closure closes the files here.
        let _ = std::thread::Builder::new()
            .name("rockmill-free".to_owned())
            .spawn(move || drop(held));
    }
    removed
}

/// Maximum files that are held open at once: a process often has only about a thousand descriptors.
const MAX_HELD: usize = 64;

/// Opens the large files of a folder, at most [`MAX_HELD`]. Other files are freed during their removal.
fn large_files(path: &Path) -> Vec<File> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let large = entries.flatten().filter(|entry| {
        let metadata = entry.metadata();
        metadata.is_ok_and(|m| m.is_file() && m.len() >= LARGE_BYTES)
    });
    let held = large.take(MAX_HELD);
    held.flat_map(|entry| File::open(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_files_and_folders_go_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("staging");
        fs::create_dir_all(path.join("below")).expect("a folder");
        fs::write(path.join("small"), "x").expect("written");
        fs::write(path.join("below/small"), "x").expect("written");
        let large = File::create(path.join("large")).expect("made");
        large.set_len(LARGE_BYTES).expect("large");
        assert_eq!(large_files(&path).len(), 1);
        remove_dir_all(&path).expect("removed");
        assert!(!path.exists());
        let error = remove_dir_all(&path).expect_err("gone already");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
