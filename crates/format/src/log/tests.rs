use super::test_encoder::{encode_log_of, put_fragment, put_numbered_fragment};
use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// Number of the log; headers have its lowest 32 bits.
const NUMBER: u64 = (1 << 32) + 12;
const LOW: u32 = 12;

/// The payloads of a write-ahead log's records, fed in pieces of `piece` bytes, and the offset of its tear.
fn read(log: &[u8], piece: usize) -> Result<(Vec<Vec<u8>>, Option<u64>)> {
    let mut reader = LogReader::write_ahead_log(NUMBER);
    let mut payloads = Vec::new();
    for bytes in log.chunks(piece) {
        reader.push(bytes);
        while let Some(record) = reader.next_record()? {
            payloads.push(record.payload);
        }
    }
    Ok((payloads, reader.torn_at()))
}

fn payloads(lens: &[usize]) -> Vec<Vec<u8>> {
    lens.iter()
        .map(|&n| (0..n).map(|i| (i % 251) as u8 | 1).collect())
        .collect()
}

fn any_lens() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![0usize..40, 32_700usize..32_800, 0usize..100_000];
    prop::collection::vec(len, 0..6)
}

proptest! {
    #[test]
    fn logs_round_trip_and_what_a_log_before_left_is_not_read(
        lens in any_lens(),
        before in any_lens(),
        recycled: bool,
        piece in 1usize..70_000,
    ) {
        let records = payloads(&lens);
        let mut log = encode_log_of(&records, recycled.then_some(LOW));
        prop_assert_eq!(read(&log, piece).unwrap(), (records.clone(), None));
        if recycled {
            let end = log.len() as u64;
            let before = encode_log_of(&payloads(&before), Some(LOW - 1));
            log.extend(before.get(log.len()..).unwrap_or_default());
            let torn = (log.len() as u64 > end).then_some(end);
            let (found, found_torn) = read(&log, piece).unwrap();
            prop_assert_eq!(found, records);
            // Padding belongs to the bytes before it.
            prop_assert!(found_torn <= torn.map(|at| at + RECYCLABLE_HEADER_LEN as u64));
            prop_assert!(found_torn.is_none() || found_torn >= torn);
        }
    }

    #[test]
    fn a_reader_goes_on_behind_any_record(lens in any_lens(), piece in 1usize..70_000) {
        let log = encode_log_of(&payloads(&lens), None);
        let records = |mut reader: LogReader| {
            let mut records = Vec::new();
            let start = reader.bytes_fed() as usize;
            for bytes in log[start..].chunks(piece) {
                reader.push(bytes);
                while let Some(record) = reader.next_record().unwrap() {
                    records.push(record);
                }
            }
            records
        };
        let all = records(LogReader::new());
        prop_assert_eq!(all.len(), lens.len());
        for (number, record) in all.iter().enumerate() {
            prop_assert_eq!(&records(LogReader::behind(record.end)), &all[number + 1..]);
        }
    }

    #[test]
    fn a_log_that_is_cut_ends_behind_its_last_whole_record(
        lens in any_lens(),
        recycled: bool,
        cut: Index,
    ) {
        let records = payloads(&lens);
        let number = recycled.then_some(LOW);
        let log = encode_log_of(&records, number);
        let cut = cut.index(log.len() + 1);
        let ends = (0..=records.len()).map(|n| encode_log_of(&records[..n], number).len());
        let whole = ends.clone().take_while(|&end| end <= cut).count() - 1;
        let (found, torn) = read(&log[..cut], 4096).unwrap();
        prop_assert_eq!(&found[..], &records[..whole]);
        let end = ends.clone().nth(whole).unwrap() as u64;
        match torn {
            Some(at) => prop_assert!(at >= end && at < end + RECYCLABLE_HEADER_LEN as u64 && at < cut as u64),
            None => prop_assert!(cut as u64 - end < RECYCLABLE_HEADER_LEN as u64),
        }
    }

    #[test]
    fn damage_gives_an_error_or_the_records_before_it(
        lens in prop::collection::vec(1usize..50_000, 1..4),
        recycled: bool,
        at: Index,
        flip in 1u8..,
    ) {
        let records = payloads(&lens);
        let mut log = encode_log_of(&records, recycled.then_some(LOW));
        let at = at.index(log.len());
        log[at] ^= flip;
        match read(&log, 4096) {
            Err(error) => prop_assert!(error.offset <= at as u64),
            Ok((found, torn)) => {
                prop_assert!(records.starts_with(&found));
                prop_assert!(found.len() == records.len() || torn.is_some_and(|torn| torn <= at as u64));
            }
        }
    }

    #[test]
    fn reading_is_total(
        bytes: Vec<u8>,
        fragments in prop::collection::vec((any::<u8>(), LOW - 1..LOW + 2, any::<Vec<u8>>()), 0..6),
        piece in 1usize..99,
    ) {
        let _ = read(&bytes, piece);
        let mut log = Vec::new();
        for (kind, number, payload) in fragments {
            if is_recyclable(kind) {
                put_numbered_fragment(&mut log, kind, number, &payload);
            } else {
                put_fragment(&mut log, kind, &payload);
            }
        }
        let at_once = read(&log, usize::MAX);
        prop_assert_eq!(read(&log, piece), at_once);
    }
}

/// A record about the previous log.
const PREDECESSOR_RECORD: [u8; PREDECESSOR_LEN] = [1; PREDECESSOR_LEN];
/// A record that gives timestamps of column family 7 eight bytes.
const SIZES_RECORD: [u8; TIMESTAMP_SIZE_LEN] = [7, 0, 0, 0, 8, 0];

fn a() -> Vec<u8> {
    b"a".to_vec()
}

#[test]
fn records_about_other_logs_and_timestamps_are_skipped() {
    let mut log = Vec::new();
    put_numbered_fragment(&mut log, RECYCLABLE_PREDECESSOR, LOW, &PREDECESSOR_RECORD);
    put_numbered_fragment(&mut log, RECYCLABLE_TIMESTAMP_SIZE, LOW, &SIZES_RECORD);
    put_numbered_fragment(&mut log, RECYCLABLE_FULL, LOW, b"a");
    assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
    let mut log = Vec::new();
    for (kind, payload) in [
        (PREDECESSOR, &PREDECESSOR_RECORD[..]),
        (TIMESTAMP_SIZE, &SIZES_RECORD),
        (200, b"whatever"),
    ] {
        put_fragment(&mut log, kind, payload);
        put_fragment(&mut log, FULL, b"a");
    }
    assert_eq!(read(&log, 1).unwrap(), (vec![a(); 3], None));
    let mut reader = LogReader::write_ahead_log(NUMBER);
    reader.push(&log);
    while reader.next_record().unwrap().is_some() {}
    assert_eq!(*reader.timestamp_sizes(), BTreeMap::from([(7, 8)]));
}

#[test]
fn records_about_a_log_must_be_well_formed_and_come_once() {
    let is_err = |records: &[(u8, &[u8])]| {
        let mut log = Vec::new();
        for &(kind, payload) in records {
            put_fragment(&mut log, kind, payload);
        }
        read(&log, 1).is_err()
    };
    let zero_size = [7, 0, 0, 0, 0, 0];
    let zstd = 7u32.to_le_bytes();
    assert!(!is_err(&[(TIMESTAMP_SIZE, &SIZES_RECORD)]));
    assert!(is_err(&[(TIMESTAMP_SIZE, &SIZES_RECORD[1..])]));
    assert!(is_err(&[(TIMESTAMP_SIZE, &zero_size)]));
    let twice = (TIMESTAMP_SIZE, &SIZES_RECORD[..]);
    assert!(is_err(&[twice, twice]));
    assert!(is_err(&[(PREDECESSOR, &PREDECESSOR_RECORD[1..])]));
    assert!(!is_err(&[(SET_COMPRESSION, &zstd)]));
    assert!(is_err(&[
        (SET_COMPRESSION, &zstd),
        (SET_COMPRESSION, &zstd)
    ]));
    assert!(is_err(&[(FULL, b"a"), (SET_COMPRESSION, &zstd)]));
}

#[test]
fn records_about_a_log_end_where_the_manifest_may_say_that_it_ends() {
    let mut log = Vec::new();
    put_fragment(&mut log, SET_COMPRESSION, &7u32.to_le_bytes());
    let told = log.len() as u64;
    log.extend([0; HEADER_LEN]);
    let mut reader = LogReader::write_ahead_log(NUMBER);
    assert_eq!(reader.control_end(), 0);
    reader.push(&log);
    assert_eq!(
        (reader.next_record().unwrap(), reader.control_end()),
        (None, told)
    );
}

#[test]
fn an_ignorable_record_drops_the_parts_before_it() {
    for ignorable in [IGNORABLE, 129, 138, 255] {
        let mut log = Vec::new();
        put_fragment(&mut log, FIRST, b"dropped");
        put_fragment(&mut log, ignorable, b"whatever");
        put_fragment(&mut log, FULL, b"a");
        assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
        put_fragment(&mut log, FIRST, b"dropped");
        put_fragment(&mut log, ignorable, b"whatever");
        assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
        put_fragment(&mut log, LAST, b"b");
        assert!(read(&log, 1).is_err());
    }
}

#[test]
fn types_that_rocksdb_takes_for_its_own_codes_do_what_these_do() {
    let log = |before: u8, kind: u8| {
        let mut log = Vec::new();
        put_fragment(&mut log, before, b"a");
        put_fragment(&mut log, kind, b"whatever");
        put_fragment(&mut log, FULL, b"a");
        read(&log, 1)
    };
    let behind_first = HEADER_LEN as u64 + 1;
    assert_eq!(log(FULL, END_OF_FILE).unwrap(), (vec![a()], None));
    assert_eq!(log(FULL, BAD_RECORD).unwrap(), (vec![a(); 2], None));
    assert_eq!(
        log(FULL, OLD_RECORD).unwrap(),
        (vec![a()], Some(behind_first))
    );
    assert_eq!(log(FIRST, OLD_RECORD).unwrap(), (vec![], Some(0)));
    for kind in [END_OF_FILE, BAD_RECORD] {
        assert!(log(FIRST, kind).is_err(), "{kind}");
    }
    for kind in [BAD_HEADER, 136, BAD_CHECKSUM] {
        assert!(log(FULL, kind).is_err(), "{kind}");
    }
}

#[test]
fn a_record_about_the_log_before_drops_parts_but_not_their_record() {
    let mut log = Vec::new();
    put_fragment(&mut log, FIRST, b"dropped");
    put_fragment(&mut log, PREDECESSOR, &PREDECESSOR_RECORD);
    put_fragment(&mut log, LAST, b"a");
    assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
}

#[test]
fn zeros_in_place_of_a_record_end_its_block() {
    let mut log = Vec::new();
    put_fragment(&mut log, FULL, b"a");
    log.resize(log.len() + HEADER_LEN, 0);
    put_fragment(&mut log, FULL, b"dropped");
    assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
    log.resize(BLOCK_LEN, 3);
    put_fragment(&mut log, FULL, b"a");
    assert_eq!(read(&log, 1).unwrap(), (vec![a(); 2], None));
    // Inside a record, RocksDB reports them.
    let mut log = Vec::new();
    put_fragment(&mut log, FIRST, b"a");
    log.resize(log.len() + HEADER_LEN, 0);
    put_fragment(&mut log, LAST, b"a");
    assert!(read(&log, 1).is_err());
}

#[test]
fn what_cannot_be_decompressed_ends_its_block() {
    let frame = zstd::stream::encode_all(&b"a"[..], 3).unwrap();
    // Any type except those that are never compressed.
    for kind in [FULL, 12, 127, 255] {
        let mut log = Vec::new();
        put_fragment(&mut log, SET_COMPRESSION, &7u32.to_le_bytes());
        put_fragment(&mut log, FULL, &frame);
        put_fragment(&mut log, kind, &[0xff; 99]);
        put_fragment(&mut log, FULL, &frame);
        assert_eq!(read(&log, 1).unwrap(), (vec![a()], None), "{kind}");
        let rest = BLOCK_LEN - log.len() - HEADER_LEN;
        put_fragment(&mut log, FULL, &vec![0xff; rest]);
        put_fragment(&mut log, FULL, &frame);
        assert_eq!(read(&log, 1).unwrap(), (vec![a(); 2], None), "{kind}");
    }
    // A last part that ends its block takes no bytes of the next one.
    let mut log = Vec::new();
    put_fragment(&mut log, SET_COMPRESSION, &7u32.to_le_bytes());
    let rest = BLOCK_LEN - log.len() - HEADER_LEN;
    put_fragment(&mut log, FULL, &vec![0xff; rest]);
    put_fragment(&mut log, FULL, &frame);
    assert_eq!(read(&log, 1).unwrap(), (vec![a()], None));
    put_fragment(&mut log, FIRST, &frame);
    put_fragment(&mut log, LAST, &[0xff; 99]);
    assert!(read(&log, 1).is_err());
}

#[test]
fn a_manifest_has_records_of_edits_and_of_what_is_ignored() {
    let records = |log: &[u8]| -> Result<usize> {
        let mut reader = LogReader::new();
        reader.push(log);
        let mut records = 0;
        while let Some(record) = reader.next_record()? {
            assert_eq!(record.payload, a());
            records += 1;
        }
        Ok(records)
    };
    for kind in (0..=255).filter(|&kind| kind != FULL) {
        let mut log = Vec::new();
        put_fragment(&mut log, FULL, b"a");
        put_fragment(&mut log, kind, &PREDECESSOR_RECORD);
        put_fragment(&mut log, FULL, b"a");
        match records(&log) {
            Ok(found) => {
                assert_eq!(found, 2);
                assert!(
                    kind >= IGNORABLE && !(RECYCLABLE_PREDECESSOR..=BAD_CHECKSUM).contains(&kind),
                    "{kind}"
                );
            }
            Err(Error { kind: error, .. }) => {
                let is_misplaced = (FIRST..=LAST).contains(&kind);
                assert_eq!(is_misplaced, error == ErrorKind::Corruption, "{kind}");
            }
        }
    }
}

#[test]
fn zeros_in_a_manifest_end_their_block_once_something_follows() {
    let mut log = Vec::new();
    put_fragment(&mut log, FULL, b"a");
    let end = log.len() as u64;
    for piece in [1, 7, 1000, usize::MAX] {
        let mut log = log.clone();
        let mut reader = LogReader::new();
        let mut feed = |log: &[u8]| {
            let mut ends = Vec::new();
            for bytes in log.chunks(piece) {
                reader.push(bytes);
                while let Some(record) = reader.next_record().unwrap() {
                    ends.push(record.end);
                }
            }
            (ends, reader.ends_in_zeros())
        };
        assert_eq!(feed(&log), (vec![end], false));
        let fed = log.len();
        log.resize(2 * BLOCK_LEN, 0);
        assert_eq!(feed(&log[fed..]), (vec![], true));
        put_fragment(&mut log, FULL, b"a");
        let end = log.len() as u64;
        assert_eq!(feed(&log[2 * BLOCK_LEN..]), (vec![end], false));
    }
    // Inside a record, RocksDB reports them.
    put_fragment(&mut log, FIRST, b"a");
    log.resize(log.len() + HEADER_LEN, 0);
    let mut reader = LogReader::new();
    reader.push(&log);
    assert!(reader.next_record().unwrap().is_some());
    assert_eq!(
        reader.next_record().unwrap_err().kind,
        ErrorKind::Corruption
    );
}

#[test]
fn a_recycled_record_in_a_log_that_is_not_recycled_is_corruption() {
    let mut log = Vec::new();
    put_fragment(&mut log, FULL, b"a");
    put_numbered_fragment(&mut log, RECYCLABLE_FULL, LOW, b"b");
    let error = read(&log, usize::MAX).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::Corruption, 8));
}

#[test]
fn records_are_decompressed() {
    let record: Vec<u8> = (0..90_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    let frame = zstd::stream::encode_all(&record[..], 3).unwrap();
    let mut log = Vec::new();
    put_fragment(&mut log, SET_COMPRESSION, &7u32.to_le_bytes());
    let (first, last) = frame.split_at(100);
    put_fragment(&mut log, FIRST, first);
    put_fragment(&mut log, LAST, last);
    assert_eq!(
        read(&log, usize::MAX).unwrap(),
        (vec![record.clone()], None)
    );
    // Each record is decompressed from its start.
    put_fragment(&mut log, FULL, first);
    put_fragment(&mut log, FULL, &frame[..9]);
    let (found, torn) = read(&log, usize::MAX).unwrap();
    assert_eq!((found[0].clone(), found.len(), torn), (record, 3, None));

    let mut log = Vec::new();
    put_fragment(&mut log, SET_COMPRESSION, &4u32.to_le_bytes());
    assert_eq!(
        read(&log, usize::MAX).unwrap_err().kind,
        ErrorKind::Unsupported
    );
}

#[test]
fn damage_tells_where_its_fragment_ends() {
    let mut reader = LogReader::write_ahead_log(NUMBER);
    let mut log = encode_log_of(&payloads(&[9, 5, 7]), None);
    let second = HEADER_LEN + 9;
    log[second + HEADER_LEN] ^= 4;
    reader.push(&log);
    assert!(reader.next_record().unwrap().is_some());
    assert_eq!(reader.next_record().unwrap_err().offset, second as u64);
    assert_eq!(reader.failed_until(), (second + HEADER_LEN + 5) as u64);
    assert_eq!(reader.torn_at(), Some(second as u64));
}
