//! Rates of plain files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rockmill_core::{Error, Result};

use crate::idle::Idle;
use crate::model::rates::StorageRates;
use crate::parallel;

const FILE_BYTES: usize = 8 << 20;
const PIECE_BYTES: usize = 256 << 10;
const PIECES: usize = FILE_BYTES / PIECE_BYTES;
const ROUNDS: usize = 2;
/// More threads than that add nothing on any machine, but files.
const MOST_THREADS: u32 = 32;

/// Bytes that the files take.
pub fn room(threads: u32) -> u64 {
    u64::from(threads.min(MOST_THREADS)) * FILE_BYTES as u64
}

/// Writes and reads new files in `dir`, one a thread, and takes the best of a few rounds.
///
/// # Errors
/// Storage, Cancelled.
pub fn measure(dir: &Path, threads: u32, idle: &Idle) -> Result<StorageRates> {
    let names: Vec<_> = (0..threads.min(MOST_THREADS))
        .map(|i| dir.join(format!("storage{i}")))
        .collect();
    let mut best = StorageRates {
        read: 0.0,
        write: 0.0,
    };
    for _ in 0..ROUNDS {
        let (written, read) = idle.piece(|cancel| {
            cancel.check()?;
            let written = rate(&names, "write it", write)?;
            let read = rate(&names, "read it", read)?;
            rate(&names, "remove it", |path| fs::remove_file(path))?;
            Ok((written, read))
        })?;
        best.write = best.write.max(written);
        best.read = best.read.max(read);
    }
    Ok(best)
}

/// Bytes a second of all files together.
fn rate(
    names: &[PathBuf],
    doing: &str,
    each: impl Fn(&Path) -> io::Result<()> + Sync,
) -> Result<f64> {
    let started = Instant::now();
    parallel::map(names, names.len(), |path| {
        each(path).map_err(|e| Error::storage(&path.display().to_string(), doing, &e))
    })?;
    Ok((FILE_BYTES * names.len()) as f64 / started.elapsed().as_secs_f64())
}

fn write(path: &Path) -> io::Result<()> {
    let (mut file, piece) = (File::create(path)?, vec![1; PIECE_BYTES]);
    (0..PIECES).try_for_each(|_| file.write_all(&piece))
}

fn read(path: &Path) -> io::Result<()> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; PIECE_BYTES]);
    (0..PIECES).try_for_each(|_| file.read_exact(&mut piece))
}
