//! Compactions of chosen files.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rust_rocksdb::{CompactionOptions, DB};

use super::handle;
use crate::internal::{self, FileFacts};
use crate::workload::Family;

/// Files to compact together, and the output level.
pub struct Pick {
    names: Vec<String>,
    output_level: i32,
}

impl Pick {
    /// Chooses files from the tree by `roll` alone, so that equal trees give equal picks. A pick is all files of
    /// neighbouring levels, or one file. `None` if there are no files.
    pub fn roll(db: &DB, family: &Family, roll: u64) -> Result<Option<Self>, String> {
        let mut rng = StdRng::seed_from_u64(roll);
        let files = internal::files(db, &family.name)?;
        let Some((last, _)) = files.last() else {
            return Ok(None);
        };
        let deepest_level = last.level;
        let bottom = family.tree.levels - 1;
        let (facts, name) = files.choose(&mut rng).expect("not empty");
        let to = rng.random_range(facts.level..=deepest_level);
        let names = if rng.random_bool(0.3) {
            vec![name.clone()]
        } else {
            let chosen =
                |(file, _): &&(FileFacts, String)| (facts.level..=to).contains(&file.level);
            files
                .iter()
                .filter(chosen)
                .map(|(_, name)| name.clone())
                .collect()
        };
        Ok(Some(Self {
            names,
            output_level: rng.random_range(to.max(1)..=bottom),
        }))
    }

    /// Whether the file with this name is in the pick.
    pub fn takes(&self, name: &str) -> bool {
        self.names.iter().any(|taken| taken == name)
    }

    /// Compacts the files. Returns false if RocksDB rejects the pick because it does not fit the tree.
    pub fn compact(&self, db: &DB, family: &Family) -> Result<bool, String> {
        let mut options = CompactionOptions::default();
        options.set_output_file_size_limit(family.tree.target_file_size);
        let cf = handle(db, family);
        match db.compact_files_cf(
            cf,
            &options,
            self.names.iter().map(String::as_str),
            self.output_level,
        ) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == rust_rocksdb::ErrorKind::InvalidArgument => Ok(false),
            Err(e) if e.kind() == rust_rocksdb::ErrorKind::Aborted => Ok(false),
            Err(e) => Err(format!("{}: compact files: {e}", db.path().display())),
        }
    }
}
