//! Encodes write batches for which the binding has no functions (`db/write_batch.cc`).

use rust_rocksdb::WriteBatch;

/// `kTypeWideColumnEntity` (`db/dbformat.h`).
const TYPE_WIDE_COLUMN_ENTITY: u8 = 0x16;
/// `kTypeColumnFamilyWideColumnEntity` (`db/dbformat.h`).
const TYPE_COLUMN_FAMILY_WIDE_COLUMN_ENTITY: u8 = 0x17;
/// `kTypeValuePreferredSeqno` (`db/dbformat.h`).
const TYPE_VALUE_PREFERRED_SEQNO: u8 = 0x18;
/// Size in bytes of the sequence number at the start of a write batch; the count follows.
const SEQUENCE_BYTES: usize = 8;

fn varint(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Encodes a length and the bytes.
fn length_prefixed(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u32)[..], bytes].concat()
}

fn batch_of_one(kind: &[u8], key: &[u8], value: &[u8]) -> WriteBatch {
    let batch = [
        &[0; SEQUENCE_BYTES][..],
        &1_u32.to_le_bytes(),
        kind,
        &length_prefixed(key),
        &length_prefixed(value),
    ]
    .concat();
    WriteBatch::from_data(&batch)
}

/// Makes a wide-column entity with the default column and another one (`wide_column_serialization.cc:Serialize`).
#[must_use]
pub fn entity(key: &[u8], default_value: &[u8]) -> WriteBatch {
    batch_of_one(&[TYPE_WIDE_COLUMN_ENTITY], key, &columns(default_value))
}

/// Makes an [`entity`] of the column family with this id.
#[must_use]
pub fn entity_of(family: u32, key: &[u8], default_value: &[u8]) -> WriteBatch {
    let kind = [
        &[TYPE_COLUMN_FAMILY_WIDE_COLUMN_ENTITY][..],
        &varint(family),
    ]
    .concat();
    batch_of_one(&kind, key, &columns(default_value))
}

fn columns(default_value: &[u8]) -> Vec<u8> {
    const VERSION: u8 = 1;
    const COLUMNS: u8 = 2;
    let other_value = b"other";
    [
        &[VERSION, COLUMNS][..],
        &length_prefixed(b""),
        &varint(default_value.len() as u32),
        &length_prefixed(b"name"),
        &[other_value.len() as u8],
        default_value,
        other_value,
    ]
    .concat()
}

/// Makes a TimedPut, with packed value and write time.
#[must_use]
pub fn timed_put(key: &[u8], value: &[u8], unix_write_time: u64) -> WriteBatch {
    let packed = [value, &unix_write_time.to_le_bytes()].concat();
    batch_of_one(&[TYPE_VALUE_PREFERRED_SEQNO], key, &packed)
}
