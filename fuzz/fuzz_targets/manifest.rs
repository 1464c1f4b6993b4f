//! The MANIFEST: as a file, and as edits that the target wraps into records with valid checksums, which the fuzzer
//! would not find.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::manifest::{Follower, VersionEdit};

/// The log's type of an unsplit record.
const WHOLE_RECORD: u8 = 1;
/// Bytes of a log block, which must have room for a record with its header.
const LOG_BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;

fuzz_target!(|input: &[u8]| {
    let Some((&[mode, piece], rest)) = input.split_first_chunk() else {
        return;
    };
    let file = if mode % 2 == 0 {
        rest.to_vec()
    } else {
        let _ = VersionEdit::decode(rest);
        log_of_edits(rest)
    };
    check_pieces_do_not_matter(&file, 1 + usize::from(piece) * 8);
});

/// A log of the edits in `bytes`, each preceded by its length (u16).
fn log_of_edits(mut bytes: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    while let Some((&len, rest)) = bytes.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(len)).min(rest.len());
        let (edit, rest) = rest.split_at(len);
        bytes = rest;
        if log.len() + HEADER + len > LOG_BLOCK {
            break;
        }
        let mut guarded = vec![WHOLE_RECORD];
        guarded.extend_from_slice(edit);
        let (&last, head) = guarded.split_last().expect("it holds the type");
        let checksum = ChecksumType::Crc32c.compute(head, last);
        log.extend_from_slice(&checksum.to_le_bytes());
        log.extend_from_slice(&(len as u16).to_le_bytes());
        log.extend_from_slice(&guarded);
    }
    log
}

/// A growing MANIFEST gives the same tree as one that is read at once.
fn check_pieces_do_not_matter(file: &[u8], piece: usize) {
    let mut whole = Follower::new();
    let at_once = whole.feed(file);
    let mut growing = Follower::new();
    let in_pieces = file.chunks(piece).try_for_each(|bytes| growing.feed(bytes));
    assert_eq!(at_once, in_pieces);
    assert_eq!(whole.tree(), growing.tree());
    assert_eq!(whole.bytes_consumed(), growing.bytes_consumed());
}
