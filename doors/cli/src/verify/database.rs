//! Checks the SST files of a database against its MANIFEST.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use rockmill_compaction::staging::file_name;
use rockmill_core::{Error, ErrorKind, InputTable, Result};
use rockmill_format::key::{self, KeyOrder};
use rockmill_format::manifest::FileMeta;
use rockmill_format::names;
use rockmill_format::table::key_order;
use rockmill_format::unique_id::internal_unique_id;
use rockmill_snapshot::closed_database::LatestOptions;
use rockmill_storage::{LocalStorage, base_name, table_path};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

use super::progress::Progress;
use super::report::Row;
use super::table::{self, Checked};
use crate::database_dir;
use crate::sst::Sst;

/// Checks every live file of every column family.
///
/// # Errors
/// Data if the MANIFEST is damaged; Environment if it cannot be read. Errors in SST files are part of the rows.
pub fn check(dir: &Path) -> std::result::Result<Vec<Row>, Failure> {
    let tree = database_dir::read_tree(dir)?;
    let files = tree
        .column_families
        .values()
        .flat_map(|family| family.levels.values().flat_map(BTreeMap::values));
    let progress = Progress::over(files.map(|file| file.size).fold(0, u64::saturating_add));
    // OPTIONS name the comparators that the MANIFEST does not name. They are not checked themselves.
    let options = LatestOptions::read(&LocalStorage, dir).ok().flatten();
    let mut rows = Vec::new();
    let mut done = 0u64;
    for family in tree.column_families.values() {
        let known = options.as_ref();
        let comparator = known.map_or(&family.comparator[..], |known| known.comparator(family));
        for (&level, files) in &family.levels {
            let misplaced = misplaced(level, files, key_order(comparator));
            for (number, file) in files {
                let path = table_path(dir, *number);
                let mut row = Row::new(&base_name(&path), file.size);
                row.column_family = Some(names::escape(&family.name));
                row.level = Some(level);
                let elsewhere = tree.has_other_paths();
                row = row.with(check_file(&path, &progress, file, elsewhere));
                if let Some(what) = misplaced.get(number) {
                    row.fail(Failure::Data(format!("{}: {what}", path.display())));
                }
                rows.push(row);
                done = done.saturating_add(file.size);
                progress.reached(done);
            }
        }
    }
    Ok(rows)
}

/// Checks a file. `elsewhere` says that the database's files lie in several directories, which OPTIONS do not name.
fn check_file(
    path: &Path,
    progress: &Progress,
    file: &FileMeta,
    elsewhere: bool,
) -> std::result::Result<Checked, Failure> {
    let name = path.display();
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound && elsewhere => {
            let what = format!(
                "{name}: all of it, because it is in directory {} of db_paths",
                file.path_id
            );
            return Err(Failure::Incomplete(what));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let what = format!("{name}: it is missing, and the MANIFEST names it");
            return Err(Failure::Environment(what));
        }
        Err(e) => return Err(Failure::Environment(format!("{name}: {e}"))),
    };
    if size != file.size {
        let what = format!(
            "{name}: it ends at offset {size}, and the MANIFEST says {} bytes",
            file.size
        );
        return Err(Failure::Data(what));
    }
    let (sst, checked) = table::check_opened(Sst::open(path, progress.bar()))?;
    compare(file, &sst.table, &checked)?;
    Ok(checked)
}

/// Compares the contents of a sound file with its record in the MANIFEST.
fn compare(file: &FileMeta, table: &InputTable, checked: &Checked) -> Result<()> {
    let name = table.file.name();
    let differs = |what: String| {
        let what = format!("the MANIFEST differs: {what}");
        Err(Error::new(ErrorKind::Corruption, what).in_file(name))
    };
    let properties = &table.meta.properties;
    let id = internal_unique_id(
        &properties.db_id,
        &properties.db_session_id,
        properties.orig_file_number,
    );
    if file.unique_id.is_some_and(|said| said != id) {
        return differs("unique id".to_owned());
    }
    // Ingested files get their sequence number from the MANIFEST; their blocks do not contain it.
    let ingested = properties.external_sst_file_version.is_some();
    let order = key_order(&properties.comparator_name);
    // Range tombstones move the bounds in the comparator's order, which may be unknown.
    let is_comparable = order.is_some() || !checked.has_range_deletions;
    let agree = || bounds_agree(file, order.unwrap_or_default(), checked, ingested);
    if is_comparable && !checked.smallest.is_empty() && !agree() {
        let shown = |internal_key: &[u8]| match key::split(internal_key) {
            Some((user_key, tag)) => {
                const COLUMNS: usize = 40;
                let user_key = output::escape_short(user_key, COLUMNS);
                format!("{user_key}@{}", key::tag_sequence(tag))
            }
            None => output::escape(internal_key),
        };
        return differs(format!(
            "keys from {} to {} instead of {} to {}",
            shown(&file.smallest),
            shown(&file.largest),
            shown(&checked.smallest),
            shown(&checked.largest)
        ));
    }
    let said = (file.smallest_seqno, file.largest_seqno);
    let said_at_all = said.0 <= said.1;
    // RocksDB 3 took them from the first and the last key alone.
    let is_narrower = |found: (u64, u64)| found.0 <= said.0 && said.1 <= found.1;
    let agree = |found| found == said || (table::is_old(table) && is_narrower(found));
    match checked.sequences {
        Some(found) if said_at_all && !ingested && !agree(found) => differs(format!(
            "sequence numbers {} to {} instead of {} to {}",
            said.0, said.1, found.0, found.1
        )),
        _ => Ok(()),
    }
}

/// Whether the MANIFEST's bounds are those of the keys; range tombstones may widen them.
fn bounds_agree(file: &FileMeta, keys: KeyOrder, checked: &Checked, ingested: bool) -> bool {
    let order = |a: &[u8], b: &[u8]| match (key::split(a), key::split(b)) {
        (Some(a), Some(b)) if ingested => keys.compare(a.0, b.0),
        (Some(a), Some(b)) => keys.compare_entries(a, b),
        _ => a.cmp(b),
    };
    let smallest = order(&file.smallest, &checked.smallest);
    let largest = order(&file.largest, &checked.largest);
    if checked.has_range_deletions {
        smallest.is_le() && largest.is_ge()
    } else {
        smallest.is_eq() && largest.is_eq()
    }
}

/// Returns files that conflict with other files of their level, and why.
///
/// In levels deeper than 0, files do not overlap. In level 0, the epoch number orders them. RocksDB infers epoch
/// numbers only if the database predates them and no file has one. With an unknown comparator, overlaps are unknown as
/// well.
fn misplaced(
    level: u32,
    files: &BTreeMap<u64, FileMeta>,
    order: Option<KeyOrder>,
) -> BTreeMap<u64, String> {
    if level == 0 {
        let numbered = files.values().any(|file| file.epoch_number != 0);
        return files
            .values()
            .filter(|file| numbered && file.epoch_number == 0)
            .map(|file| (file.number, "the MANIFEST has no epoch number".to_owned()))
            .collect();
    }
    let mut found = BTreeMap::new();
    let Some(order) = order else {
        return found;
    };
    let mut sorted: Vec<_> = files.values().collect();
    let compare = |a: &[u8], b: &[u8]| {
        let [a, b] = [a, b].map(|key| key::split(key).unwrap_or((key, 0)));
        order.compare_entries(a, b)
    };
    sorted.sort_by(|a, b| compare(&a.smallest, &b.smallest));
    let Some(mut widest) = sorted.first().copied() else {
        return found;
    };
    for file in &sorted[1..] {
        if compare(&widest.largest, &file.smallest).is_ge() {
            let what = format!("it overlaps {} in level {level}", file_name(widest.number));
            found.insert(file.number, what);
        }
        if compare(&file.largest, &widest.largest).is_gt() {
            widest = file;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_format::key::{join, pack_tag};

    fn file(number: u64, smallest: (&[u8], u64), largest: (&[u8], u64)) -> (u64, FileMeta) {
        let internal = |(user_key, sequence): (&[u8], u64)| join(user_key, pack_tag(sequence, 1));
        let meta = FileMeta {
            number,
            smallest: internal(smallest),
            largest: internal(largest),
            ..FileMeta::default()
        };
        (number, meta)
    }

    #[test]
    fn files_below_level_0_may_touch_but_not_overlap() {
        let touching =
            BTreeMap::from([file(1, (b"m", 4), (b"z", 1)), file(2, (b"a", 9), (b"m", 5))]);
        assert!(misplaced(1, &touching, Some(KeyOrder::Bytewise)).is_empty());
        let overlapping = BTreeMap::from([
            file(1, (b"a", 9), (b"z", 1)),
            file(2, (b"b", 9), (b"c", 1)),
            file(3, (b"d", 9), (b"e", 1)),
        ]);
        let found: Vec<_> = misplaced(1, &overlapping, Some(KeyOrder::Bytewise))
            .into_keys()
            .collect();
        assert_eq!(found, [2, 3]);
        assert!(misplaced(1, &overlapping, None).is_empty());
    }

    #[test]
    fn files_of_level_0_may_overlap_but_need_epoch_numbers() {
        let mut files =
            BTreeMap::from([file(1, (b"a", 9), (b"z", 1)), file(2, (b"b", 9), (b"c", 1))]);
        assert!(misplaced(0, &files, Some(KeyOrder::Bytewise)).is_empty());
        files.get_mut(&1).expect("made above").epoch_number = 7;
        let found: Vec<_> = misplaced(0, &files, Some(KeyOrder::Bytewise))
            .into_keys()
            .collect();
        assert_eq!(found, [2]);
    }

    #[test]
    fn bounds_are_exact_unless_range_tombstones_or_ingestion_move_them() {
        let (_, meta) = file(1, (b"a", 9), (b"z", 1));
        let checked = |smallest: (&[u8], u64), has_range_deletions| {
            let (_, keys) = file(1, smallest, (b"z", 1));
            Checked {
                smallest: keys.smallest,
                largest: keys.largest,
                sequences: Some((1, 9)),
                has_range_deletions,
                ..Checked::default()
            }
        };
        let agree = |smallest, has_range_deletions, is_ingested| {
            let checked = checked(smallest, has_range_deletions);
            bounds_agree(&meta, KeyOrder::Bytewise, &checked, is_ingested)
        };
        assert!(agree((b"a", 9), false, false));
        assert!(!agree((b"a", 8), false, false));
        assert!(agree((b"a", 8), false, true));
        assert!(agree((b"b", 9), true, false));
        assert!(!agree((b"A", 9), true, false));
    }
}
