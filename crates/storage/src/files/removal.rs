//! Removing a folder without waiting for the space that its files take.
//!
//! A file system frees some gigabytes a second at best, and a database that closes in the middle of a large
//! job should not wait for that. What has lost its name is freed when its last descriptor is closed: so
//! the names go at once, and a thread of its own closes the descriptors. Nothing of that touches the
//! database's folder any more.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Freeing less takes no longer than starting a thread.
const LARGE_BYTES: u64 = 4 << 20;

/// Removes a folder with all that it holds. Space is freed soon afterwards.
///
/// # Errors
/// Whatever the system says; NotFound if there is none.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    let held = large_files(path);
    let removed = fs::remove_dir_all(path);
    if !held.is_empty() {
        // Where the system has no more threads, they are closed right here.
        let _ = std::thread::Builder::new()
            .name("rockmill-free".to_owned())
            .spawn(move || drop(held));
    }
    removed
}

/// Most files that are held open at once: a process has a thousand descriptors or so.
const MAX_HELD: usize = 64;

/// Large files of a folder, open, but no more than [`MAX_HELD`]; others are freed while they are removed.
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
