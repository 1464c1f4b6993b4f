//! Writes logs for the tests, as `log::Writer` does.

use super::{
    BLOCK_LEN, FIRST, FULL, HEADER_LEN, LAST, MASK_DELTA, MASK_ROTATION, MIDDLE, RECYCLABLE_FULL,
    RECYCLABLE_HEADER_LEN,
};

/// A log of these records.
pub(crate) fn encode_log<T: AsRef<[u8]>>(records: &[T]) -> Vec<u8> {
    encode_log_of(records, None)
}

/// A log of these records, which reuses another log's file if it has a number.
pub(crate) fn encode_log_of<T: AsRef<[u8]>>(records: &[T], number: Option<u32>) -> Vec<u8> {
    let header = number.map_or(HEADER_LEN, |_| RECYCLABLE_HEADER_LEN);
    let mut out = Vec::new();
    for record in records {
        let mut rest = record.as_ref();
        let mut first = true;
        while first || !rest.is_empty() {
            let left = BLOCK_LEN - out.len() % BLOCK_LEN;
            if left < header {
                out.resize(out.len() + left, 0);
            }
            let room = BLOCK_LEN - out.len() % BLOCK_LEN - header;
            let (part, behind) = rest.split_at(rest.len().min(room));
            let kind = match (first, behind.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            match number {
                None => put_fragment(&mut out, kind, part),
                Some(number) => {
                    put_numbered_fragment(&mut out, kind - FULL + RECYCLABLE_FULL, number, part);
                }
            }
            rest = behind;
            first = false;
        }
    }
    out
}

pub(crate) fn put_fragment(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    put_parts(out, kind, &[], payload);
}

pub(crate) fn put_numbered_fragment(out: &mut Vec<u8>, kind: u8, number: u32, payload: &[u8]) {
    put_parts(out, kind, &number.to_le_bytes(), payload);
}

fn put_parts(out: &mut Vec<u8>, kind: u8, number: &[u8], payload: &[u8]) {
    let body = [&[kind], number, payload].concat();
    let crc = crc32c::crc32c(&body).rotate_right(MASK_ROTATION);
    out.extend_from_slice(&crc.wrapping_add(MASK_DELTA).to_le_bytes());
    let len = u16::try_from(payload.len()).expect("a fragment fits a block");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&body);
}
