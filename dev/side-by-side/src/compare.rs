//! Compares internal keys and values of two databases entry by entry.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rockmill_compaction::verify::table;
use rockmill_core::open_table;
use rockmill_format::key;
use rockmill_storage::{InputFileReader, LocalStorage};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;
use rust_rocksdb::{DB, Options};

use crate::{measure, progress, rocksdb};

/// Entries per batch; the next constant is the number of queued batches.
const BATCH_ENTRIES: usize = 1024;
const WAITING_BATCHES: usize = 4;

/// Internal key and value.
type Entry = (Vec<u8>, Vec<u8>);

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// All entries are the same, with the same sequence numbers. This is their number.
    Same(u64),
    /// The first difference, in a clause.
    Different(String),
}

/// Compares RocksDB's and Rockmill's results, which are in the first nonempty level of each.
///
/// # Errors
/// Data or Environment if a file cannot be read; an error if a signal comes.
pub fn databases(a: &Path, b: &Path) -> Result<Compared, Failure> {
    let spinner = progress::spinner("comparing entry by entry".to_owned());
    let (files_a, files_b) = (files(a)?, files(b)?);
    let compared = std::thread::scope(|scope| {
        let (to_a, from_a) = sync_channel(WAITING_BATCHES);
        let (to_b, from_b) = sync_channel(WAITING_BATCHES);
        let read_a = scope.spawn(move || send(a, &files_a, &to_a));
        let read_b = scope.spawn(move || send(b, &files_b, &to_b));
        let compared = entries(&from_a, &from_b);
        drop((from_a, from_b));
        let results = [read_a.join(), read_b.join()];
        for result in results {
            result.map_err(|_| Failure::Environment("a reader panicked".to_owned()))??;
        }
        Ok(compared)
    });
    spinner.finish_and_clear();
    compared
}

/// Returns the files of the first nonempty level, in key order.
fn files(path: &Path) -> Result<Vec<String>, Failure> {
    let db = DB::open_for_read_only(&Options::default(), path, false)
        .map_err(|e| rocksdb::failed("open a database", &e))?;
    let mut files = measure::first_level(&db)?;
    files.sort_by(|x, y| x.start_key.cmp(&y.start_key));
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// Sends all entries of `files`; ends early if the receiver is gone.
fn send(dir: &Path, files: &[String], to: &SyncSender<Vec<Entry>>) -> Result<(), Failure> {
    let mut batch = Vec::with_capacity(BATCH_ENTRIES);
    let mut gone = false;
    for name in files {
        let path = dir.join(name.trim_start_matches('/'));
        let table = open_table(Box::new(InputFileReader::open(&LocalStorage, &path)?))?;
        table::scan(&table, signals::token(), |user_key, tag, value| {
            batch.push((key::join(user_key, tag), value.to_vec()));
            if batch.len() == BATCH_ENTRIES && !gone {
                gone = to.send(std::mem::take(&mut batch)).is_err();
            }
            if gone {
                batch.clear();
            }
            Ok(())
        })?;
    }
    // If the receiver is gone, it has found a difference already.
    let _ = to.send(batch);
    Ok(())
}

fn entries(a: &Receiver<Vec<Entry>>, b: &Receiver<Vec<Entry>>) -> Compared {
    let mut a = a.iter().flatten();
    let mut b = b.iter().flatten();
    let mut number = 0u64;
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Compared::Same(number),
            (x, y) if x == y => number += 1,
            (x, y) => {
                let show = |entry: Option<Entry>| match entry {
                    Some((key, value)) => {
                        format!("{} with {} bytes of value", key.escape_ascii(), value.len())
                    }
                    None => "no entry".to_owned(),
                };
                return Compared::Different(format!(
                    "entry {number} is {} for RocksDB and {} for Rockmill",
                    show(x),
                    show(y)
                ));
            }
        }
    }
}
