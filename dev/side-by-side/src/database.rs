//! A database of overlapping files in level 0, and copies of it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{DB, Options};

use crate::machine::usual_threads;
use crate::spec::DatabaseSpec;
use crate::{fill, measure, progress, rocksdb};

/// The database whose copies are compacted. It is closed and never compacted itself.
pub struct Origin {
    path: PathBuf,
    options: Options,
}

impl Origin {
    /// Creates the database in a new folder.
    ///
    /// # Errors
    /// Stopped if a signal came; Environment or Data if RocksDB fails.
    pub fn make(path: PathBuf, spec: &DatabaseSpec) -> Result<Self, Failure> {
        if spec.above_older {
            make_older(&path, spec)?;
        }
        let mut options = spec.options(1);
        options.create_if_missing(true);
        fill::prepare(&mut options);
        let db = DB::open(&options, &path).map_err(|e| rocksdb::failed("make a database", &e))?;
        fill::fill(&db, spec).map_err(|e| rocksdb::failed("write", &e))?;
        drop(db);
        signals::check("the database is not whole")?;
        let options = spec.options(1);
        Ok(Self { path, options })
    }

    /// Copies the database to a new folder. The copy shares the files as hard links.
    pub fn copy_to(&self, path: &Path) -> Result<(), Failure> {
        let db = rocksdb::open(&self.path, &self.options)?;
        Checkpoint::new(&db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(path))
            .map_err(|e| rocksdb::failed("make a checkpoint", &e))
    }

    /// Reads all files once, several in parallel, so that the page cache holds as many as possible.
    pub fn warm(&self) -> Result<(), Failure> {
        let spinner = progress::spinner("reading the files once".to_owned());
        let read = read_folder(&self.path);
        spinner.finish_and_clear();
        read.map_err(|e| Failure::Environment(format!("{}: {e}", self.path.display())))
    }
}

/// Creates a database whose last level has an older entry for some of the keys.
fn make_older(path: &Path, spec: &DatabaseSpec) -> Result<(), Failure> {
    let bottommost = DatabaseSpec {
        above_older: false,
        ..spec.clone()
    };
    let mut options = bottommost.options(1);
    options.create_if_missing(true);
    let db = DB::open(&options, path).map_err(|e| rocksdb::failed("make a database", &e))?;
    fill::fill_older(&db, spec).map_err(|e| rocksdb::failed("write", &e))?;
    measure::compact_all(&db);
    Ok(())
}

/// Reads the files of a folder, on as many threads as there are cores.
fn read_folder(path: &Path) -> io::Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let files = path.read_dir()?.collect::<io::Result<Vec<_>>>()?;
    let next = AtomicUsize::new(0);
    let read = || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Some(entry) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(entry.path())?;
            while file.read(&mut piece)? > 0 {}
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..usual_threads()).map(|_| scope.spawn(read)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|p| std::panic::resume_unwind(p))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rust_rocksdb::IteratorMode;

    use super::*;
    use crate::spec::Keys;

    const ENTRIES: u64 = 5000;
    const RUNS: u64 = 7;

    type Entries = BTreeMap<Box<[u8]>, Box<[u8]>>;

    /// Returns the newest entries, and the number of all entries in level 0, of a database of seven runs.
    fn made(versions: u64, above_older: bool) -> (Entries, u64) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let spec = DatabaseSpec {
            workload: format!("16x32:lz4:{ENTRIES}").parse().expect("a workload"),
            versions,
            runs: RUNS,
            delete_every: None,
            delete_range_every: None,
            operands: false,
            filtered: false,
            above_older,
            direct_io: false,
            paranoid: false,
            keys: Keys::Mixed,
            writers: 16,
            target_file_bytes: 1 << 20,
        };
        let origin = Origin::make(dir.path().join("origin"), &spec).expect("room");
        let copy = dir.path().join("copy");
        origin.copy_to(&copy).expect("room");
        let db = rocksdb::open(&copy, &spec.options(1)).expect("a database");
        let mut files = db.live_files().expect("files");
        let last_level = files.iter().map(|file| file.level).max();
        assert_eq!(last_level, Some(if above_older { 6 } else { 0 }));
        files.retain(|file| file.level == 0);
        assert_eq!(files.len() as u64, RUNS);
        let newest = db.iterator(IteratorMode::Start).map(|e| e.expect("sound"));
        (newest.collect(), files.iter().map(|f| f.num_entries).sum())
    }

    #[test]
    fn each_key_is_there_once_if_there_is_one_version() {
        let (newest, all) = made(1, false);
        assert_eq!((newest.len() as u64, all), (ENTRIES, ENTRIES));
    }

    #[test]
    fn the_newest_entries_do_not_depend_on_how_threads_take_turns() {
        let (newest, all) = made(4, false);
        assert!((newest.len() as u64) < all);
        assert_eq!((newest, all), made(4, false));
    }

    #[test]
    fn older_entries_of_the_same_keys_lie_in_the_last_level() {
        let (above, all) = made(1, true);
        let (alone, _) = made(1, false);
        assert_eq!(all, ENTRIES);
        assert!(
            alone
                .iter()
                .all(|(key, value)| above.get(key) == Some(value))
        );
        // The number of keys per writer is rounded.
        assert!(above.len() - alone.len() <= RUNS as usize);
    }
}
