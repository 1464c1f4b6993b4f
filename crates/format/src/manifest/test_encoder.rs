//! Writes edits for the tests, as `VersionEdit::EncodeTo` does.

use super::edit::{VersionEdit, tag};
use super::file_meta::{FileMeta, UNKNOWN_CHECKSUM_FUNC_NAME, field};
use crate::coding::{put_length_prefixed, put_varint};

pub(super) fn put_number(out: &mut Vec<u8>, tag: u32, value: u64) {
    put_varint(out, u64::from(tag));
    put_varint(out, value);
}

pub(super) fn put_slice(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    put_varint(out, u64::from(tag));
    put_length_prefixed(out, bytes);
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

pub(super) fn encode_edit(edit: &VersionEdit) -> Vec<u8> {
    let mut out = Vec::new();
    let optional_numbers = [
        (tag::LOG_NUMBER, edit.log_number),
        (tag::PREV_LOG_NUMBER, edit.prev_log_number),
        (tag::NEXT_FILE_NUMBER, edit.next_file_number),
        (
            tag::MAX_COLUMN_FAMILY,
            edit.max_column_family.map(u64::from),
        ),
        (tag::MIN_LOG_NUMBER_TO_KEEP, edit.min_log_number_to_keep),
        (tag::LAST_SEQUENCE, edit.last_sequence),
        (
            tag::IN_ATOMIC_GROUP,
            edit.atomic_group_remaining.map(u64::from),
        ),
    ];
    for (tag, value) in optional_numbers {
        if let Some(value) = value {
            put_number(&mut out, tag, value);
        }
    }
    let flag = edit
        .persist_user_defined_timestamps
        .map(|p| vec![u8::from(p)]);
    let optional_slices = [
        (tag::DB_ID, &edit.db_id),
        (tag::COMPARATOR, &edit.comparator),
        (tag::COLUMN_FAMILY_ADD, &edit.column_family_add),
        (tag::FULL_HISTORY_TS_LOW, &edit.full_history_ts_low),
        (tag::PERSIST_USER_DEFINED_TIMESTAMPS, &flag),
    ];
    for (tag, value) in optional_slices {
        if let Some(value) = value {
            put_slice(&mut out, tag, value);
        }
    }
    for &(level, number) in &edit.deleted_files {
        put_number(&mut out, tag::DELETED_FILE, u64::from(level));
        put_varint(&mut out, number);
    }
    for (level, file) in &edit.new_files {
        encode_file(&mut out, *level, file);
    }
    for &(number, size) in &edit.synced_logs {
        let addition = [varint(number), vec![2], varint(size), vec![1]].concat();
        put_slice(&mut out, tag::WAL_ADDITION_2, &addition);
    }
    if let Some(first) = edit.first_tracked_log {
        put_slice(&mut out, tag::WAL_DELETION_2, &varint(first));
    }
    if edit.column_family != 0 {
        put_number(&mut out, tag::COLUMN_FAMILY, u64::from(edit.column_family));
    }
    if edit.column_family_drop {
        put_varint(&mut out, u64::from(tag::COLUMN_FAMILY_DROP));
    }
    if edit.touches_blob_files {
        put_number(&mut out, tag::BLOB_FILE_ADDITION, 7);
        put_varint(&mut out, 1);
        put_varint(&mut out, 2);
        put_length_prefixed(&mut out, b"method");
        put_length_prefixed(&mut out, b"value");
        put_slice(&mut out, 3, b"a field to skip");
        put_varint(&mut out, 0);
    }
    out
}

fn encode_file(out: &mut Vec<u8>, level: u32, file: &FileMeta) {
    put_number(out, tag::NEW_FILE_4, u64::from(level));
    put_varint(out, file.number);
    put_varint(out, file.size);
    put_length_prefixed(out, &file.smallest);
    put_length_prefixed(out, &file.largest);
    put_varint(out, file.smallest_seqno);
    put_varint(out, file.largest_seqno);
    put_slice(
        out,
        field::OLDEST_ANCESTOR_TIME,
        &varint(file.oldest_ancester_time),
    );
    put_slice(
        out,
        field::FILE_CREATION_TIME,
        &varint(file.file_creation_time),
    );
    put_slice(out, field::EPOCH_NUMBER, &varint(file.epoch_number));
    if file.file_checksum_func_name != UNKNOWN_CHECKSUM_FUNC_NAME {
        put_slice(out, field::FILE_CHECKSUM, &file.file_checksum);
        put_slice(
            out,
            field::FILE_CHECKSUM_FUNC_NAME,
            &file.file_checksum_func_name,
        );
    }
    put_slice(out, field::PATH_ID, &[file.path_id]);
    put_slice(out, field::TEMPERATURE, &[file.temperature.byte()]);
    put_slice(
        out,
        field::NEED_COMPACTION,
        &[u8::from(file.marked_for_compaction)],
    );
    if let Some(number) = file.oldest_blob_file {
        put_slice(out, field::OLDEST_BLOB_FILE_NUMBER, &varint(number));
    }
    if let Some(id) = file.unique_id {
        put_slice(out, field::UNIQUE_ID, &id.map(u64::to_le_bytes).concat());
    }
    let size = varint(file.compensated_range_deletion_size);
    put_slice(out, field::COMPENSATED_RANGE_DELETION_SIZE, &size);
    put_slice(out, field::TAIL_SIZE, &varint(file.tail_size));
    let persisted = u8::from(file.user_defined_timestamps_persisted);
    put_slice(out, field::USER_DEFINED_TIMESTAMPS_PERSISTED, &[persisted]);
    if file.has_timestamps {
        put_slice(out, field::MIN_TIMESTAMP, b"12345678");
    }
    put_varint(out, u64::from(field::TERMINATE));
}
