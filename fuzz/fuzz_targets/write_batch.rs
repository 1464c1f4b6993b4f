//! Write batches: alone, in a write-ahead log, and in a log into which the target wraps them with valid checksums,
//! which the fuzzer would not find.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::Result;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::log::LogReader;
use rockmill_format::write_batch::{BatchRecord, WriteBatch};

/// Bytes of a log's block, which must have room for a fragment with its header.
const LOG_BLOCK: usize = 32 * 1024;
/// Bytes of a fragment's header.
const HEADER: usize = 7;
/// Sizes of the parts in which a log is read; the first is the whole.
const PIECES: [usize; 3] = [usize::MAX, 1, 100];

/// The records of a log, the error behind them, and the place where the log is torn.
type Read = (Vec<Vec<u8>>, Result<()>, Option<u64>);

fuzz_target!(|input: &[u8]| {
    let Some((&[mode, number], rest)) = input.split_first_chunk() else {
        return;
    };
    let log = match mode % 3 {
        0 => return check_batch(rest),
        1 => rest.to_vec(),
        _ => log_of_fragments(rest),
    };
    let [at_once, pieces @ ..] = PIECES.map(|piece| read(&log, u64::from(number), piece));
    for in_pieces in pieces {
        assert_eq!((&at_once.0, &at_once.1), (&in_pieces.0, &in_pieces.1));
        // After an error, the log is not read to its end.
        assert!(at_once.1.is_err() || at_once.2 == in_pieces.2);
    }
    for record in &at_once.0 {
        check_batch(record);
    }
});

fn read(log: &[u8], number: u64, piece: usize) -> Read {
    let mut reader = LogReader::write_ahead_log(number);
    let mut records = Vec::new();
    for bytes in log.chunks(piece) {
        reader.push(bytes);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push(record.payload),
                Ok(None) => break,
                Err(error) => return (records, Err(error), reader.torn_at()),
            }
        }
    }
    (records, Ok(()), reader.torn_at())
}

/// A log of the fragments in `bytes`: each has its type, its length (u16), and the bytes behind the header.
fn log_of_fragments(mut bytes: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (body, rest) = rest.split_at(len);
        bytes = rest;
        // Types 5 to 8, 11 and 131 have the log's number before the payload.
        let number_len = if matches!(kind, 5..=8 | 11 | 131) {
            4
        } else {
            0
        };
        if log.len() + HEADER + len > LOG_BLOCK || len < number_len {
            break;
        }
        let guarded = [&[kind], body].concat();
        let (&last, head) = guarded.split_last().expect("it holds the type");
        let checksum = ChecksumType::Crc32c.compute(head, last);
        log.extend_from_slice(&checksum.to_le_bytes());
        log.extend_from_slice(&((len - number_len) as u16).to_le_bytes());
        log.extend_from_slice(&guarded);
    }
    log
}

fn check_batch(bytes: &[u8]) {
    let Ok(mut batch) = WriteBatch::parse(bytes) else {
        return;
    };
    let mut expected = batch.first_sequence();
    loop {
        match batch.next_record() {
            Ok(Some(BatchRecord::Entry(entry))) => {
                assert_eq!(entry.sequence, expected);
                assert!(entry.offset < bytes.len());
                expected += 1;
            }
            Ok(Some(BatchRecord::Prepared(prepared))) => {
                // The sequence numbers may be impossible.
                let Ok(mut committed) = WriteBatch::of_prepared(&prepared, expected) else {
                    continue;
                };
                // They have been read before.
                while let Some(record) = committed.next_record().expect("sound records") {
                    assert!(matches!(record, BatchRecord::Entry(_)));
                }
            }
            Ok(Some(BatchRecord::Commit(_) | BatchRecord::Rollback(_))) => {}
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset <= bytes.len() as u64);
                return;
            }
        }
    }
    assert_eq!(batch.next_sequence(), expected);
    assert!(expected <= batch.last_sequence() + 1);
}
