//! Conditions for a database whose process was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rockmill::DeviceList;
use rockmill_compaction::staging::{STAGING_DIR, file_name};
use rockmill_compaction::verify::table::scan;
use rockmill_core::{CancelToken, open_table};
use rockmill_format::manifest::FileMeta;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::{InputFileReader, LocalStorage};
use rust_rocksdb::{BottommostLevelCompaction, CompactOptions, DB, Options, WaitForCompactOptions};

use super::script::{CHECKER, Model, Script, WRITERS, count_key, handles};
use super::shape::{DatabaseShape, FAMILIES};
use super::writer::{count, service};
use crate::content::{check_pairs, read_everything, scan_forward};
use crate::device::Subcompactions;

/// Background work of a small database ends long before this.
const QUIET_TIMEOUT_MICROS: u64 = 60_000_000;

/// Files that a killed process left, before anything else has touched them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Number of jobs' folders in the staging folder.
    pub folders: u64,
    /// Number of files in these folders.
    pub staged_files: u64,
    /// SST files in the database's folder that are not in the MANIFEST: renamed or flushed, and not installed.
    pub unlisted_files: u64,
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |e| format!("{}: {e}", path.display())
}

/// Returns the names in a folder; empty if there is no such folder.
fn names(path: &Path) -> Result<Vec<String>, String> {
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at(path))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(at(path))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Returns the files that the MANIFEST names.
fn listed(dir: &Path) -> Result<BTreeMap<String, FileMeta>, String> {
    let mut follower = TreeFollower::default();
    follower
        .refresh(&LocalStorage, dir, (0, 0), &CancelToken::new())
        .map_err(|e| format!("the MANIFEST: {e}"))?;
    let families = follower.tree().column_families.values();
    let files = families.flat_map(|family| family.levels.values().flat_map(BTreeMap::values));
    Ok(files
        .map(|file| (file_name(file.number), file.clone()))
        .collect())
}

/// Returns the SST files in a folder.
fn tables(dir: &Path) -> Result<BTreeSet<String>, String> {
    let names = names(dir)?;
    Ok(names.into_iter().filter(|n| n.ends_with(".sst")).collect())
}

/// Counts the files that a killed process left in `dir`.
///
/// # Errors
///
/// The operating system's error or an error in the MANIFEST, as text.
pub fn remains(dir: &Path) -> Result<Remains, String> {
    let staging = dir.join(STAGING_DIR);
    let mut remains = Remains::default();
    for name in names(&staging)? {
        remains.folders += 1;
        remains.staged_files += names(&staging.join(name))?.len() as u64;
    }
    // A database whose creation was interrupted may have no MANIFEST.
    if dir.join("CURRENT").exists() {
        let listed = listed(dir)?;
        let unlisted = tables(dir)?;
        let unlisted = unlisted.iter().filter(|name| !listed.contains_key(*name));
        remains.unlisted_files = unlisted.count() as u64;
    }
    Ok(remains)
}

/// Results of a restarted service.
#[derive(Clone, Copy, Debug)]
pub struct Restarted {
    /// Number of its subcompactions by device.
    pub subcompactions: Subcompactions,
    /// Number of SST files that were read.
    pub files: u64,
}

/// A database to check, and its expected content.
#[derive(Debug)]
pub struct Checker<'a> {
    dir: &'a Path,
    device: DeviceList,
    shape: DatabaseShape,
    script: Script,
}

impl<'a> Checker<'a> {
    /// Creates a checker for the database of `seed` in `dir`, whose processes compact on `device`.
    #[must_use]
    pub fn new(dir: &'a Path, seed: u64, device: DeviceList) -> Self {
        Self {
            dir,
            device,
            shape: DatabaseShape::new(seed, device),
            script: Script::new(seed),
        }
    }

    /// Opens the database with RocksDB alone and all of its checks, and compares it with the `acknowledged` batches.
    /// Adds the batches found to the model. Returns the number of SST files read.
    ///
    /// # Errors
    ///
    /// The condition that does not hold.
    pub fn recovered(
        &self,
        model: &mut Model,
        acknowledged: &[u64; WRITERS],
    ) -> Result<u64, String> {
        let mut options = Options::default();
        options.set_disable_auto_compactions(true);
        options.set_paranoid_checks(true);
        options.set_verify_sst_unique_id_in_manifest(true);
        options.set_force_consistency_checks(true);
        let db = self.shape.open(options, self.dir)?;
        for (writer, &acknowledged) in acknowledged.iter().enumerate() {
            let found = last_batch(&db, writer)?;
            check_count(writer, acknowledged.max(model.counts()[writer]), found)?;
            model.advance(writer, found);
        }
        check_content(&db, model)?;
        db.verify_checksum()
            .map_err(|e| format!("checksums: {e}"))?;
        drop(db);
        check_files(self.dir)
    }

    /// Opens the database with a service, lets it write and compact the column family number `family`, and checks that
    /// files of the killed process were removed.
    ///
    /// # Errors
    ///
    /// The condition that does not hold.
    pub fn restarted(&self, model: &mut Model, family: usize) -> Result<Restarted, String> {
        let service = service(Arc::new(LocalStorage), self.device)?;
        service.wait_for_device().map_err(|e| e.to_string())?;
        let mut options = Options::default();
        options.set_compaction_service(service.clone());
        let db = self.shape.open(options, self.dir)?;
        let number = model.counts()[CHECKER] + 1;
        self.script.write(&db, CHECKER, number)?;
        model.advance(CHECKER, number);
        compact(&db, family)?;
        let stats = service.stats();
        if stats.jobs_done == 0 || stats.jobs_failed > 0 {
            return Err(format!("jobs after the restart: {stats}"));
        }
        let left = names(&self.dir.join(STAGING_DIR))?;
        if !left.is_empty() {
            return Err(format!("left in the staging folder: {left:?}"));
        }
        check_content(&db, model)?;
        drop(db);
        Ok(Restarted {
            subcompactions: Subcompactions::from(&stats),
            files: check_files(self.dir)?,
        })
    }
}

fn compact(db: &DB, family: usize) -> Result<(), String> {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    let family = handles(db)?[family % FAMILIES.len()];
    db.flush_cf(family).map_err(|e| format!("flush: {e}"))?;
    db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
    let mut options = WaitForCompactOptions::default();
    options.set_timeout(QUIET_TIMEOUT_MICROS);
    db.wait_for_compact(&options)
        .map_err(|e| format!("background work: {e}"))
}

/// Returns the number of the last batch of `writer`, which must be the same in every family.
fn last_batch(db: &DB, writer: usize) -> Result<u64, String> {
    let mut counts = Vec::new();
    for family in handles(db)? {
        let found = db.get_cf_opt(family, count_key(writer), &read_everything());
        counts.push(count(found.map_err(|e| e.to_string())?.as_deref())?);
    }
    match counts.iter().all(|count| *count == counts[0]) {
        true => Ok(counts[0]),
        false => Err(format!(
            "a torn batch of writer {writer}: the families' last are {counts:?}"
        )),
    }
}

/// A writer has one batch in flight, so at most one unacknowledged batch may be there.
fn check_count(writer: usize, acknowledged: u64, found: u64) -> Result<(), String> {
    if found < acknowledged {
        return Err(format!(
            "writer {writer}: batch {acknowledged} was acknowledged, and the last one there is {found}"
        ));
    }
    if found > acknowledged + 1 {
        return Err(format!(
            "writer {writer}: batch {found} is there, and batch {acknowledged} was the last one \
             acknowledged"
        ));
    }
    Ok(())
}

fn check_content(db: &DB, model: &Model) -> Result<(), String> {
    let families = handles(db)?.into_iter().zip(FAMILIES);
    for ((handle, name), content) in families.zip(model.content()) {
        let expected: Vec<_> = content
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let iterator = db.raw_iterator_cf_opt(handle, read_everything());
        let found = scan_forward(iterator)?;
        check_pairs(name, &expected, &found)?;
    }
    Ok(())
}

/// Checks that the folder of a closed database has exactly the SST files that its MANIFEST names. Each must match the
/// MANIFEST, with sound checksums and ascending keys. Returns the number of files.
///
/// # Errors
///
/// The condition that does not hold.
pub fn check_files(dir: &Path) -> Result<u64, String> {
    let (listed, found) = (listed(dir)?, tables(dir)?);
    let missing: Vec<_> = listed.keys().filter(|n| !found.contains(*n)).collect();
    let orphaned: Vec<_> = found.iter().filter(|n| !listed.contains_key(*n)).collect();
    if !missing.is_empty() || !orphaned.is_empty() {
        return Err(format!("missing {missing:?}, orphaned {orphaned:?}"));
    }
    for (name, meant) in &listed {
        let check = || -> rockmill_core::Result<bool> {
            let file = InputFileReader::open(&LocalStorage, &dir.join(name))?;
            let table = open_table(Box::new(file))?;
            let contents = scan(&table, &CancelToken::new(), |_, _, _| Ok(()))?;
            Ok(table.meta.file_size == meant.size
                && contents.entries() == table.meta.properties.num_entries
                && contents.smallest == meant.smallest
                && contents.largest == meant.largest)
        };
        match check() {
            Ok(true) => {}
            Ok(false) => return Err(format!("{name} is not what the MANIFEST says")),
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(listed.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 1;

    /// A closed database with `batches` batches of writer 0 in SST files.
    fn written(dir: &Path, batches: std::ops::RangeInclusive<u64>) {
        let shape = DatabaseShape::new(SEED, DeviceList::default());
        let db = shape.open(Options::default(), dir).expect("opens");
        for number in batches {
            Script::new(SEED).write(&db, 0, number).expect("written");
        }
        for family in handles(&db).expect("families") {
            db.flush_cf(family).expect("flushed");
        }
    }

    fn recovered(dir: &Path, acknowledged: u64) -> Result<u64, String> {
        let mut model = Model::new(Script::new(SEED));
        Checker::new(dir, SEED, DeviceList::default()).recovered(&mut model, &[acknowledged, 0, 0])
    }

    fn refused(dir: &Path, acknowledged: u64) -> String {
        recovered(dir, acknowledged).expect_err("not what was written")
    }

    #[test]
    fn what_was_written_is_accepted_with_or_without_the_last_batch() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        written(dir.path(), 1..=20);
        assert!(recovered(dir.path(), 20).expect("all is there") > 0);
        recovered(dir.path(), 19).expect("the last was not acknowledged yet");
    }

    #[test]
    fn a_lost_batch_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        written(dir.path(), 1..=20);
        assert!(refused(dir.path(), 21).contains("batch 21 was acknowledged"));
        assert!(refused(dir.path(), 18).contains("batch 20 is there"));
    }

    #[test]
    fn a_batch_lost_in_the_middle_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        written(dir.path(), 2..=20);
        assert!(refused(dir.path(), 20).contains("instead of"));
    }

    #[test]
    fn a_torn_batch_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        written(dir.path(), 1..=20);
        let shape = DatabaseShape::new(SEED, DeviceList::default());
        let db = shape.open(Options::default(), dir.path()).expect("opens");
        let family = handles(&db).expect("families")[1];
        db.put_cf(family, count_key(0), "21").expect("put");
        drop(db);
        assert!(refused(dir.path(), 20).contains("torn batch"));
    }

    #[test]
    fn missing_and_orphaned_and_damaged_files_are_noticed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        written(dir.path(), 1..=20);
        let refused = || check_files(dir.path()).expect_err("not as it was");
        let orphan = dir.path().join("999999.sst");
        fs::write(&orphan, "").expect("written");
        assert!(refused().contains("orphaned [\"999999.sst\"]"));
        fs::remove_file(&orphan).expect("removed");

        let name = tables(dir.path()).expect("listed").pop_first();
        let path = dir.path().join(name.expect("a file"));
        let mut bytes = fs::read(&path).expect("read");
        bytes[10] ^= 1;
        fs::write(&path, bytes).expect("written");
        assert!(refused().contains("checksum"), "{}", refused());
        fs::remove_file(&path).expect("removed");
        assert!(refused().contains("missing [\""));
    }
}
