use super::edit::tag;
use super::file_meta::field;
use super::test_encoder::{encode_edit, put_number, put_slice};
use super::*;
use crate::coding::put_varint;
use crate::error::ErrorKind;
use crate::log::test_encoder::{encode_log, put_fragment};
use crate::log::{BLOCK_LEN, FIRST, FULL, HEADER_LEN, LAST, MIDDLE};
use crate::log::{LogReader, Record};

/// Three column families, flushed and compacted by RocksDB 11.12.
pub(super) const REAL: &[u8] = include_bytes!("../../tests/data/manifest-11.12.bin");

pub(super) fn file(number: u64) -> FileMeta {
    FileMeta {
        number,
        smallest: b"a\x01\0\0\0\0\0\0\0".to_vec(),
        largest: b"z\x01\0\0\0\0\0\0\0".to_vec(),
        smallest_seqno: 0,
        ..FileMeta::default()
    }
}

fn adding(level: u32, numbers: &[u64]) -> VersionEdit {
    VersionEdit {
        new_files: numbers.iter().map(|&n| (level, file(n))).collect(),
        ..VersionEdit::default()
    }
}

fn follow(edits: &[VersionEdit]) -> crate::Result<Follower> {
    let records: Vec<_> = edits.iter().map(encode_edit).collect();
    let mut follower = Follower::new();
    follower.feed(&encode_log(&records))?;
    Ok(follower)
}

/// The records of a log fed in pieces that end at `cuts`.
pub(super) fn read_in_pieces(log: &[u8], cuts: &[usize]) -> crate::Result<Vec<Record>> {
    let mut reader = LogReader::new();
    let mut records = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&log.len()]) {
        reader.push(&log[from..to]);
        from = to;
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        assert_eq!(reader.bytes_fed(), to as u64);
    }
    Ok(records)
}

fn error_of_log(log: &[u8]) -> crate::Error {
    read_in_pieces(log, &[]).unwrap_err()
}

#[test]
fn a_real_manifest_gives_the_files_that_rocksdb_reports() {
    let mut follower = Follower::new();
    for piece in REAL.chunks(13) {
        follower.feed(piece).unwrap();
    }
    assert_eq!(follower.bytes_consumed(), REAL.len() as u64);
    let tree = follower.tree();
    let mut found = Vec::new();
    for cf in tree.column_families.values() {
        assert_eq!(cf.comparator, b"leveldb.BytewiseComparator");
        assert_eq!(cf.persist_user_defined_timestamps, Some(true));
        for (level, files) in &cf.levels {
            for file in files.values() {
                assert!(file.unique_id.is_some() && file.epoch_number > 0 && file.tail_size > 0);
                found.push((cf.name.as_slice(), *level, file.number, file.size));
            }
        }
    }
    let other = &b"a:b#c\"d\\e"[..];
    let expected = [
        (&b"default"[..], 0, 32, 1623),
        (b"default", 6, 29, 8161),
        (other, 0, 11, 2208),
        (other, 0, 18, 2249),
        (other, 0, 25, 2254),
        (b"blobs", 6, 30, 1734),
    ];
    assert_eq!(found, expected);
    assert!(tree.by_name(b"blobs").unwrap().1.has_blob_files);
    assert!(!tree.by_name(other).unwrap().1.has_blob_files);
    assert_eq!((tree.db_id.len(), tree.last_sequence), (36, 3310));
    let log_numbers = tree.column_families.values().map(|cf| cf.log_number);
    assert_eq!(log_numbers.collect::<Vec<_>>(), [31, 24, 26]);
    assert_eq!(tree.min_log_number_to_keep, 31);
    let (_, file) = tree.column_families[&0].file(29).unwrap();
    assert_eq!(file.smallest, b"k00000\x01\0\0\0\0\0\0\0");
    assert_eq!(file.largest, b"k00999\x01\0\0\0\0\0\0\0");
}

#[test]
fn a_file_moves_between_levels_in_one_edit() {
    let mut moving = adding(1, &[5]);
    moving.deleted_files.push((0, 5));
    let follower = follow(&[adding(0, &[5, 6]), moving]).unwrap();
    let cf = &follower.tree().column_families[&0];
    assert_eq!((cf.file(5).unwrap().0, cf.file(6).unwrap().0), (1, 0));
    assert_eq!(cf.levels[&0].len(), 1);
    assert!(cf.file(7).is_none());
}

#[test]
fn edits_that_do_not_fit_the_state_are_corruption() {
    let deleting = |level, number| VersionEdit {
        deleted_files: vec![(level, number)],
        ..VersionEdit::default()
    };
    let creating = |id, name: &[u8]| VersionEdit {
        column_family: id,
        column_family_add: Some(name.to_vec()),
        ..VersionEdit::default()
    };
    let elsewhere = VersionEdit {
        column_family: 4,
        ..adding(0, &[1])
    };
    let cases = [
        vec![deleting(0, 1)],
        vec![adding(0, &[1]), deleting(1, 1)],
        vec![adding(0, &[1]), adding(1, &[1])],
        vec![elsewhere],
        vec![creating(0, b"x")],
        vec![creating(1, b"default")],
    ];
    for edits in cases {
        let error = follow(&edits).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corruption, "{edits:?}");
        let before: Vec<_> = edits[..edits.len() - 1].iter().map(encode_edit).collect();
        assert_eq!(error.offset, encode_log(&before).len() as u64, "{edits:?}");
    }
}

#[test]
fn column_families_come_and_go() {
    let create = VersionEdit {
        column_family: 3,
        column_family_add: Some(b"cf".to_vec()),
        comparator: Some(b"leveldb.BytewiseComparator".to_vec()),
        persist_user_defined_timestamps: Some(true),
        ..VersionEdit::default()
    };
    let fill = VersionEdit {
        column_family: 3,
        touches_blob_files: true,
        db_id: Some(b"id".to_vec()),
        last_sequence: Some(9),
        next_file_number: Some(12),
        ..adding(6, &[11])
    };
    let drop = VersionEdit {
        column_family: 3,
        column_family_drop: true,
        ..VersionEdit::default()
    };
    let follower = follow(&[create.clone(), fill.clone()]).unwrap();
    let tree = follower.tree();
    let (id, cf) = tree.by_name(b"cf").unwrap();
    assert_eq!((id, cf.has_blob_files), (3, true));
    assert_eq!(cf.comparator, b"leveldb.BytewiseComparator");
    assert_eq!(cf.persist_user_defined_timestamps, Some(true));
    assert!(!tree.column_families[&0].has_blob_files);
    assert_eq!(
        (&tree.db_id[..], tree.last_sequence, tree.next_file_number),
        (&b"id"[..], 9, 12)
    );

    let again = follow(&[create.clone(), fill, drop, create]).unwrap();
    assert!(again.tree().by_name(b"cf").unwrap().1.levels.is_empty());
}

#[test]
fn log_numbers_do_not_go_back() {
    let edit = |column_family, log_number, min_log_number_to_keep| VersionEdit {
        column_family,
        log_number: Some(log_number),
        min_log_number_to_keep,
        ..VersionEdit::default()
    };
    let create = VersionEdit {
        column_family_add: Some(b"cf".to_vec()),
        ..edit(3, 5, None)
    };
    let edits = [
        create,
        edit(0, 9, Some(8)),
        edit(0, 7, Some(6)),
        edit(3, 6, None),
    ];
    let follower = follow(&edits).unwrap();
    let tree = follower.tree();
    let numbers = tree.column_families.values().map(|cf| cf.log_number);
    assert_eq!(numbers.collect::<Vec<_>>(), [9, 6]);
    assert_eq!(tree.min_log_number_to_keep, 8);
}

#[test]
fn an_atomic_group_takes_effect_with_its_last_edit() {
    let member = |remaining, number| VersionEdit {
        atomic_group_remaining: Some(remaining),
        ..adding(0, &[number])
    };
    let whole: Vec<_> = [member(1, 1), member(0, 2), adding(0, &[3])]
        .iter()
        .map(encode_edit)
        .collect();
    let log = encode_log(&whole);
    let first_end = encode_log(&whole[..1]).len();
    let mut follower = Follower::new();
    follower.feed(&log[..first_end]).unwrap();
    assert_eq!(
        (follower.bytes_consumed(), follower.bytes_fed()),
        (0, first_end as u64)
    );
    assert!(follower.tree().column_families[&0].levels.is_empty());
    follower.feed(&log[first_end..]).unwrap();
    assert_eq!(follower.tree().column_families[&0].levels[&0].len(), 3);
    assert_eq!(follower.bytes_consumed(), log.len() as u64);

    assert!(follow(&[member(2, 1), member(0, 2)]).is_err());
    assert!(follow(&[member(1, 1), adding(0, &[2])]).is_err());
    assert!(follow(&[member(0, 1)]).is_ok());
}

#[test]
fn tags_that_are_not_needed_are_read_over() {
    let mut bytes = Vec::new();
    put_number(&mut bytes, tag::COMPACT_CURSOR, 2);
    bytes.extend_from_slice(b"\x08\x01\0\0\0\0\0\0\0");
    put_number(&mut bytes, tag::BLOB_FILE_GARBAGE_OLD, 7);
    bytes.extend_from_slice(&[1, 2, 0]);
    for ignorable in [tag::IGNORABLE, 8202, 8203, 8300, 3 << 13] {
        put_slice(&mut bytes, ignorable, b"whatever");
    }
    put_number(&mut bytes, tag::LAST_SEQUENCE, 77);
    let edit = VersionEdit::decode(&bytes).unwrap();
    let expected = VersionEdit {
        last_sequence: Some(77),
        touches_blob_files: true,
        ..VersionEdit::default()
    };
    assert_eq!(edit, expected);
}

#[test]
fn tracked_logs_have_the_largest_synced_size_until_they_are_obsolete() {
    let addition = |number: u8, fields: &[u8]| [&[number], fields, &[1]].concat();
    let mut tree = Tree::new();
    let mut apply = |bytes: &[u8]| {
        tree.apply(&VersionEdit::decode(bytes).unwrap()).unwrap();
        let sizes = tree.synced_logs.iter();
        sizes
            .map(|(&number, &size)| (number, size))
            .collect::<Vec<_>>()
    };
    let mut old = Vec::new();
    for (number, fields) in [(4, &[2, 100][..]), (5, &[]), (6, &[2, 10])] {
        put_varint(&mut old, u64::from(tag::WAL_ADDITION));
        old.extend(addition(number, fields));
    }
    assert_eq!(apply(&old), [(4, 100), (6, 10)]);
    let mut new = Vec::new();
    for fields in [[2, 30], [2, 20]] {
        put_slice(&mut new, tag::WAL_ADDITION_2, &addition(6, &fields));
    }
    assert_eq!(apply(&new), [(4, 100), (6, 30)]);
    let mut deletion = Vec::new();
    put_slice(&mut deletion, tag::WAL_DELETION_2, &[5]);
    assert_eq!(apply(&deletion), [(6, 30)]);
    assert_eq!(apply(&old), [(6, 30)]);
    let mut deletion = Vec::new();
    put_number(&mut deletion, tag::WAL_DELETION, 7);
    assert_eq!(apply(&deletion), []);
    for malformed in [&[4][..], &[4, 2], &[4, 3, 1, 1]] {
        let mut bytes = Vec::new();
        put_slice(&mut bytes, tag::WAL_ADDITION_2, malformed);
        assert!(VersionEdit::decode(&bytes).is_err());
    }
}

#[test]
fn unknown_tags_and_fields_that_matter_are_unsupported() {
    let mut unknown = Vec::new();
    put_number(&mut unknown, 11, 1);
    let good = encode_edit(&adding(0, &[1]));
    let with_field = |tag, body: &[u8]| {
        let mut bytes = good[..good.len() - 1].to_vec();
        put_slice(&mut bytes, tag, body);
        put_varint(&mut bytes, u64::from(field::TERMINATE));
        VersionEdit::decode(&bytes)
    };
    assert_eq!(
        VersionEdit::decode(&unknown).unwrap_err().kind,
        ErrorKind::Unsupported
    );
    let error = with_field(66, b"").unwrap_err();
    assert_eq!(
        (error.kind, error.offset),
        (ErrorKind::Unsupported, good.len() as u64 - 1)
    );
    assert_eq!(with_field(17, b"metadata"), VersionEdit::decode(&good));
    for (tag, body) in [
        (field::PATH_ID, &b"\x04"[..]),
        (field::PATH_ID, b""),
        (field::UNIQUE_ID, b"12345678"),
        (field::UNIQUE_ID, b"12345678123456781"),
        (field::TAIL_SIZE, b"\x80"),
        (field::MIN_LOG_NUMBER_TO_KEEP, b"1"),
    ] {
        let error = with_field(tag, body).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corruption, "field {tag}");
        assert!(error.offset as usize > good.len(), "field {tag}: {error}");
    }
    let hidden = with_field(field::MIN_LOG_NUMBER_TO_KEEP, &5u64.to_le_bytes()).unwrap();
    assert_eq!(hidden.min_log_number_to_keep, Some(5));
}

#[test]
fn older_forms_of_new_files_are_read() {
    let key = b"\x09a\x01\0\0\0\0\0\0\0";
    let head = |tag| {
        let mut bytes = Vec::new();
        put_number(&mut bytes, tag, 2);
        put_varint(&mut bytes, 9);
        bytes
    };
    let mut plain = head(tag::NEW_FILE);
    plain.extend_from_slice(&[[100].as_slice(), key, key].concat());
    let mut second = head(tag::NEW_FILE_2);
    second.extend_from_slice(&[[100].as_slice(), key, key, &[3, 4]].concat());
    let mut third = head(tag::NEW_FILE_3);
    third.extend_from_slice(&[[1, 100].as_slice(), key, key, &[3, 4]].concat());
    for (bytes, path_id, largest_seqno) in [(&plain, 0, 0), (&second, 0, 4), (&third, 1, 4)] {
        let edit = VersionEdit::decode(bytes).unwrap();
        let (level, file) = &edit.new_files[0];
        assert_eq!((*level, file.number, file.size), (2, 9, 100));
        assert_eq!((file.path_id, file.largest_seqno), (path_id, largest_seqno));
        assert_eq!(file.largest, &key[1..]);
        assert!(VersionEdit::decode(&bytes[..bytes.len() - 1]).is_err());
    }
    let path_id_at = 3;
    third[path_id_at] = 4;
    assert!(VersionEdit::decode(&third).is_err());
}

#[test]
fn damaged_logs_name_the_offset() {
    let log = encode_log(&[vec![7; 10], vec![8; 20]]);
    let second = (HEADER_LEN + 10) as u64;
    let mut flipped = log.clone();
    flipped[second as usize + 9] ^= 1;
    let error = error_of_log(&flipped);
    assert_eq!((error.kind, error.offset), (ErrorKind::Corruption, second));

    let mut long = log.clone();
    long[second as usize + 5] = 0xff;
    let error = error_of_log(&long);
    assert_eq!((error.kind, error.offset), (ErrorKind::Corruption, second));
    assert!(error.what.contains("runs past"), "{error}");

    for (kinds, offset) in [
        (vec![MIDDLE], 0),
        (vec![LAST], 0),
        (vec![FIRST, FULL], 8),
        (vec![FIRST, MIDDLE, FIRST], 16),
    ] {
        let mut log = Vec::new();
        for &kind in &kinds {
            put_fragment(&mut log, kind, b"x");
        }
        let error = error_of_log(&log);
        assert_eq!(
            (error.kind, error.offset),
            (ErrorKind::Corruption, offset),
            "{kinds:?}"
        );
    }
}

#[test]
fn fragments_that_manifests_do_not_have_are_unsupported() {
    for kind in (5..=11).chain(131..=137) {
        let mut log = Vec::new();
        put_fragment(&mut log, kind, b"x");
        assert_eq!(
            error_of_log(&log).kind,
            ErrorKind::Unsupported,
            "type {kind}"
        );
    }
}

#[test]
fn an_error_stays() {
    let mut log = encode_log(&[b"\x04\x05"]);
    log[0] ^= 1;
    let mut follower = Follower::new();
    let error = follower.feed(&log).unwrap_err();
    assert_eq!(follower.feed(&encode_log(&[b"\x04\x05"])), Err(error));
    assert_eq!(follower.bytes_consumed(), 0);
}

#[test]
fn an_empty_first_fragment_before_a_record_is_skipped() {
    let mut log = Vec::new();
    put_fragment(&mut log, FIRST, b"");
    put_fragment(&mut log, FULL, b"x");
    assert_eq!(read_in_pieces(&log, &[]).unwrap()[0].payload, b"x");
}

#[test]
fn records_at_the_end_of_a_block_leave_padding() {
    for gap in 0..HEADER_LEN + 2 {
        let records = [vec![1; BLOCK_LEN - HEADER_LEN - gap], vec![2; 3]];
        let log = encode_log(&records);
        let read = read_in_pieces(&log, &[BLOCK_LEN - gap / 2]).unwrap();
        assert_eq!(read.len(), 2, "gap {gap}");
        assert_eq!(read[0].end, (BLOCK_LEN - gap) as u64);
        assert_eq!(read[1].payload, records[1]);
    }
}

#[test]
fn a_manifest_must_have_given_every_counter() {
    let edit = |log, next, last| VersionEdit {
        log_number: log,
        next_file_number: next,
        last_sequence: last,
        ..VersionEdit::default()
    };
    let missing = |edits: &[VersionEdit]| {
        let checked = follow(edits).unwrap().tree().check();
        checked.map_err(|error| error.what.into_owned())
    };
    let refused = |names: &str| Err(format!("no {names} entry in MANIFEST"));
    assert_eq!(
        missing(&[]),
        refused("log_file_number, next_file_number, last_sequence")
    );
    assert_eq!(
        missing(&[edit(Some(0), None, None)]),
        refused("next_file_number, last_sequence")
    );
    assert_eq!(
        missing(&[edit(None, Some(2), Some(0))]),
        refused("log_file_number")
    );
    let dropped = |log| VersionEdit {
        column_family: 1,
        column_family_drop: true,
        ..edit(log, Some(2), Some(0))
    };
    let added = VersionEdit {
        column_family: 1,
        column_family_add: Some(b"one".to_vec()),
        ..VersionEdit::default()
    };
    assert_eq!(
        missing(&[added, dropped(Some(3))]),
        refused("log_file_number")
    );
    assert_eq!(
        missing(&[edit(None, Some(2), None), edit(Some(0), None, Some(0))]),
        Ok(())
    );
}
