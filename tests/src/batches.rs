//! Encodes write batches for which the binding has no functions (`db/write_batch.cc`).

use rust_rocksdb::WriteBatch;

/// `kTypeWideColumnEntity` (`db/dbformat.h`).
const TYPE_WIDE_COLUMN_ENTITY: u8 = 0x16;
/// `kTypeValuePreferredSeqno` (`db/dbformat.h`).
const TYPE_VALUE_PREFERRED_SEQNO: u8 = 0x18;
/// Size in bytes of the sequence number at the start of a write batch; the count follows.
const SEQUENCE_BYTES: usize = 8;

/// Encodes a length and the bytes. All are shorter than 128 bytes, so the varint is one byte.
fn length_prefixed(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}

fn batch_of_one(kind: u8, key: &[u8], value: &[u8]) -> WriteBatch {
    let batch = [
        &[0; SEQUENCE_BYTES][..],
        &1_u32.to_le_bytes(),
        &[kind],
        &length_prefixed(key),
        &length_prefixed(value),
    ]
    .concat();
    WriteBatch::from_data(&batch)
}

/// Makes a wide-column entity with the default column and another one (`wide_column_serialization.cc:Serialize`).
#[must_use]
pub fn entity(key: &[u8], default_value: &[u8]) -> WriteBatch {
    const VERSION: u8 = 1;
    const COLUMNS: u8 = 2;
    let other_value = b"other";
    let entity = [
        &[VERSION, COLUMNS][..],
        &length_prefixed(b""),
        &[default_value.len() as u8],
        &length_prefixed(b"name"),
        &[other_value.len() as u8],
        default_value,
        other_value,
    ]
    .concat();
    batch_of_one(TYPE_WIDE_COLUMN_ENTITY, key, &entity)
}

/// Makes a TimedPut, with packed value and write time.
#[must_use]
pub fn timed_put(key: &[u8], value: &[u8], unix_write_time: u64) -> WriteBatch {
    let packed = [value, &unix_write_time.to_le_bytes()].concat();
    batch_of_one(TYPE_VALUE_PREFERRED_SEQNO, key, &packed)
}
