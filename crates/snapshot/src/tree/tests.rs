use std::fs;

use rockmill_format::checksum::ChecksumType;
use rockmill_format::log::LogReader;
use rockmill_storage::LocalStorage;

use super::*;

/// A MANIFEST of RocksDB.
const MANIFEST: &[u8] = include_bytes!("../../../format/tests/data/manifest-11.12.bin");

/// Tags of an edit (`version_edit.h:Tag`).
const NEXT_FILE_NUMBER: u8 = 3;
const DELETED_FILE: u8 = 6;

#[test]
fn edits_that_take_the_place_of_zeros_are_read() {
    const ZEROS: usize = 100_000;
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::write(dir.join("CURRENT"), "MANIFEST-000005\n").expect("written");
    let mut log = LogReader::new();
    log.push(MANIFEST);
    let mut ends = Vec::new();
    while let Some(record) = log.next_record().expect("it is sound") {
        ends.push(record.end as usize);
    }
    let mut follower = TreeFollower::default();
    let mut trees = Vec::new();
    let mut refresh = |bytes: &[u8]| {
        fs::write(dir.join("MANIFEST-000005"), bytes).expect("written");
        let done = follower.refresh(&LocalStorage, dir, (0, 0), &CancelToken::new());
        done.map(|()| (follower.position().bytes, follower.tree().clone()))
    };
    for end in ends {
        let mut bytes = MANIFEST[..end].to_vec();
        bytes.resize(ZEROS, 0);
        // The first edits alone are not a database.
        if let Ok((position, tree)) = refresh(&bytes) {
            assert_eq!(position, end as u64);
            trees.push(tree);
        }
    }
    assert!(trees.len() > 2, "{}", trees.len());
    let (_, whole) = refresh(MANIFEST).expect("it is sound");
    assert_eq!(trees.pop(), Some(whole));
}

/// Appends a record with an edit to a MANIFEST.
fn append(manifest: &mut Vec<u8>, edit: &[u8]) {
    const WHOLE_RECORD: u8 = 1;
    let record = [&[WHOLE_RECORD], edit].concat();
    let (last, head) = record.split_last().expect("it has a type");
    manifest.extend(ChecksumType::Crc32c.compute(head, *last).to_le_bytes());
    manifest.extend((edit.len() as u16).to_le_bytes());
    manifest.extend(record);
}

#[test]
fn a_file_that_only_an_uncertain_edit_deletes_is_still_below_a_job() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::write(dir.join("CURRENT"), "MANIFEST-000005\n").expect("written");
    let input = CompactionServiceInput {
        cf_name: b"default".to_vec(),
        input_files: vec!["000032.sst".to_owned()],
        output_level: 1,
        ..CompactionServiceInput::default()
    };
    // The levels below a job with files that overlap it, and whether it is full and bottommost.
    let found = |bytes: &[u8], floor| {
        fs::write(dir.join("MANIFEST-000005"), bytes).expect("written");
        let mut follower = TreeFollower::default();
        let read = follower.refresh(&LocalStorage, dir, floor, &CancelToken::new());
        read.expect("it is sound");
        let state = follower.tree_state(&input, 0).expect("it has the input");
        let levels = state.deeper.iter().map(|&(level, _)| level);
        (levels.collect::<Vec<_>>(), follower.extent(&input, 0))
    };
    let (is_below, is_deleted) = ((vec![6], (false, false)), (vec![], (true, true)));
    let mut bytes = MANIFEST.to_vec();
    let before = bytes.len() as u64;
    assert_eq!(found(&bytes, (5, before)), is_below);
    append(&mut bytes, &[NEXT_FILE_NUMBER, 100, DELETED_FILE, 6, 29]);
    let behind = bytes.len() as u64;
    // RocksDB takes the edit back if it cannot sync it.
    for floor in [(5, before), (4, behind), (0, 0)] {
        assert_eq!(found(&bytes, floor), is_below, "{floor:?}");
    }
    assert_eq!(found(&bytes, (5, behind)), is_deleted);
    // A later edit in the same MANIFEST shows that RocksDB has synced it.
    append(&mut bytes, &[NEXT_FILE_NUMBER, 102]);
    for floor in [(5, before), (4, behind), (0, 0)] {
        assert_eq!(found(&bytes, floor), is_deleted, "{floor:?}");
    }
}

#[test]
fn a_shorter_manifest_of_the_same_name_is_read_from_its_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::write(dir.join("CURRENT"), "MANIFEST-000005\n").expect("written");
    let mut longer = MANIFEST.to_vec();
    append(&mut longer, &[NEXT_FILE_NUMBER, 100, DELETED_FILE, 6, 29]);
    let mut follower = TreeFollower::default();
    let mut has_file = |bytes: &[u8]| {
        fs::write(dir.join("MANIFEST-000005"), bytes).expect("written");
        let read = follower.refresh(&LocalStorage, dir, (0, 0), &CancelToken::new());
        read.expect("it is sound");
        assert_eq!(follower.position().bytes, bytes.len() as u64);
        follower.tree().column_families[&0].file(29).is_some()
    };
    assert!(has_file(MANIFEST) && !has_file(&longer) && has_file(MANIFEST));
}
