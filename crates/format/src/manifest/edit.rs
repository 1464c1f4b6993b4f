//! One record of a MANIFEST.
//!
//! ```text
//! edit := ( varint32 tag, body )*
//! ```
//!
//! An unknown tag with bit 13 set has a length before its body and is skipped. Tags 8194 to 8197 have that bit and no
//! length, so they must be known.
//!
//! Source: `db/version_edit.cc:VersionEdit::DecodeFrom`.

use super::file_meta::{FileMeta, Form, internal_key};
use crate::coding::Cursor;
use crate::error::{Error, Result};

/// Tags of an edit (`version_edit.h:Tag`).
pub(super) mod tag {
    pub const COMPARATOR: u32 = 1;
    pub const LOG_NUMBER: u32 = 2;
    pub const NEXT_FILE_NUMBER: u32 = 3;
    pub const LAST_SEQUENCE: u32 = 4;
    pub const COMPACT_CURSOR: u32 = 5;
    pub const DELETED_FILE: u32 = 6;
    pub const NEW_FILE: u32 = 7;
    pub const PREV_LOG_NUMBER: u32 = 9;
    pub const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
    pub const NEW_FILE_2: u32 = 100;
    pub const NEW_FILE_3: u32 = 102;
    pub const NEW_FILE_4: u32 = 103;
    pub const COLUMN_FAMILY: u32 = 200;
    pub const COLUMN_FAMILY_ADD: u32 = 201;
    pub const COLUMN_FAMILY_DROP: u32 = 202;
    pub const MAX_COLUMN_FAMILY: u32 = 203;
    pub const IN_ATOMIC_GROUP: u32 = 300;
    pub const BLOB_FILE_ADDITION: u32 = 400;
    pub const BLOB_FILE_GARBAGE: u32 = 401;
    /// An unknown tag with this bit is skipped.
    pub const IGNORABLE: u32 = 1 << 13;
    pub const DB_ID: u32 = IGNORABLE + 1;
    pub const BLOB_FILE_ADDITION_OLD: u32 = IGNORABLE + 2;
    pub const BLOB_FILE_GARBAGE_OLD: u32 = IGNORABLE + 3;
    pub const WAL_ADDITION: u32 = IGNORABLE + 4;
    pub const WAL_DELETION: u32 = IGNORABLE + 5;
    pub const FULL_HISTORY_TS_LOW: u32 = IGNORABLE + 6;
    pub const WAL_ADDITION_2: u32 = IGNORABLE + 7;
    pub const WAL_DELETION_2: u32 = IGNORABLE + 8;
    pub const PERSIST_USER_DEFINED_TIMESTAMPS: u32 = IGNORABLE + 9;
}

/// Changes to one column family, and to the database's counters
/// (`db/version_edit.h:VersionEdit`).
///
/// Compaction cursors, subcompaction progress and the numbers of blob files are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Identity of the database.
    pub db_id: Option<Vec<u8>>,
    /// Name of the column family's comparator.
    pub comparator: Option<Vec<u8>>,
    /// WAL files below this number have no unflushed entries of the column family.
    pub log_number: Option<u64>,
    /// Not used by RocksDB any more.
    pub prev_log_number: Option<u64>,
    /// Lowest file number that is not used yet.
    pub next_file_number: Option<u64>,
    /// Largest id of a column family so far.
    pub max_column_family: Option<u32>,
    /// WAL files below this number are obsolete.
    pub min_log_number_to_keep: Option<u64>,
    /// Last sequence number in SST files.
    pub last_sequence: Option<u64>,
    /// Level and number of each deleted file.
    pub deleted_files: Vec<(u32, u64)>,
    /// Level and description of each added file. Deletions apply first.
    pub new_files: Vec<(u32, FileMeta)>,
    /// Id of the column family; 0 is `default`.
    pub column_family: u32,
    /// The name, if the edit creates the column family.
    pub column_family_add: Option<Vec<u8>>,
    /// Whether the edit drops the column family.
    pub column_family_drop: bool,
    /// Number of edits to come that take effect together with this one.
    pub atomic_group_remaining: Option<u32>,
    /// Whether the edit adds a blob file or counts garbage in one.
    pub touches_blob_files: bool,
    /// User-defined timestamps below this may be collapsed.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Whether user-defined timestamps are kept in SST files.
    pub persist_user_defined_timestamps: Option<bool>,
    /// Number and synced size in bytes of WAL files.
    pub synced_logs: Vec<(u64, u64)>,
    /// WAL files below this number are not tracked any more.
    pub first_tracked_log: Option<u64>,
}

impl VersionEdit {
    /// Reads an edit.
    ///
    /// # Errors
    /// Corruption if the bytes are malformed; Unsupported for a tag or a field of a later version
    /// that must not be skipped. Offsets count within `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        let mut cursor = Cursor::new(bytes);
        while !cursor.is_empty() {
            let at = cursor.offset();
            let tag = cursor.varint32()?;
            edit.decode_body(tag, at, &mut cursor)
                .map_err(|mut error| {
                    error.what = format!("tag {tag}: {}", error.what).into();
                    error
                })?;
        }
        Ok(edit)
    }

    fn decode_body(&mut self, tag: u32, at: usize, cursor: &mut Cursor<'_>) -> Result<()> {
        match tag {
            tag::DB_ID => self.db_id = Some(cursor.length_prefixed()?.to_vec()),
            tag::COMPARATOR => self.comparator = Some(cursor.length_prefixed()?.to_vec()),
            tag::LOG_NUMBER => self.log_number = Some(cursor.varint64()?),
            tag::PREV_LOG_NUMBER => self.prev_log_number = Some(cursor.varint64()?),
            tag::NEXT_FILE_NUMBER => self.next_file_number = Some(cursor.varint64()?),
            tag::MAX_COLUMN_FAMILY => self.max_column_family = Some(cursor.varint32()?),
            tag::MIN_LOG_NUMBER_TO_KEEP => {
                self.min_log_number_to_keep = Some(cursor.varint64()?);
            }
            tag::LAST_SEQUENCE => self.last_sequence = Some(cursor.varint64()?),
            tag::COLUMN_FAMILY => self.column_family = cursor.varint32()?,
            tag::COLUMN_FAMILY_ADD => {
                self.column_family_add = Some(cursor.length_prefixed()?.to_vec());
            }
            tag::COLUMN_FAMILY_DROP => self.column_family_drop = true,
            tag::IN_ATOMIC_GROUP => self.atomic_group_remaining = Some(cursor.varint32()?),
            tag::FULL_HISTORY_TS_LOW => {
                let timestamp = cursor.length_prefixed()?;
                if timestamp.is_empty() {
                    return Err(Error::corruption(at, "empty timestamp"));
                }
                self.full_history_ts_low = Some(timestamp.to_vec());
            }
            tag::PERSIST_USER_DEFINED_TIMESTAMPS => {
                let &[flag] = cursor.length_prefixed()? else {
                    return Err(Error::corruption(at, "flag that is not one byte"));
                };
                self.persist_user_defined_timestamps = Some(flag == 1);
            }
            _ => return self.decode_files(tag, at, cursor),
        }
        Ok(())
    }

    fn decode_files(&mut self, tag: u32, at: usize, cursor: &mut Cursor<'_>) -> Result<()> {
        match tag {
            tag::COMPACT_CURSOR => {
                cursor.varint32()?;
                internal_key(cursor)?;
            }
            tag::DELETED_FILE => self
                .deleted_files
                .push((cursor.varint32()?, cursor.varint64()?)),
            tag::NEW_FILE => self.decode_new_file(cursor, Form::Plain)?,
            tag::NEW_FILE_2 => self.decode_new_file(cursor, Form::Sequences)?,
            tag::NEW_FILE_3 => self.decode_new_file(cursor, Form::Path)?,
            tag::NEW_FILE_4 => {
                let level = cursor.varint32()?;
                let mut file = FileMeta::decode(cursor, Form::Sequences)?;
                if let Some(number) = file.decode_fields(cursor)? {
                    self.min_log_number_to_keep = Some(number);
                }
                self.new_files.push((level, file));
            }
            tag::BLOB_FILE_ADDITION | tag::BLOB_FILE_ADDITION_OLD => {
                skip_blob_file(cursor, true)?;
                self.touches_blob_files = true;
            }
            tag::BLOB_FILE_GARBAGE | tag::BLOB_FILE_GARBAGE_OLD => {
                skip_blob_file(cursor, false)?;
                self.touches_blob_files = true;
            }
            tag::WAL_ADDITION => self.synced_logs.extend(wal_addition(cursor)?),
            tag::WAL_ADDITION_2 => {
                let mut addition = Cursor::new(cursor.length_prefixed()?);
                let added = wal_addition(&mut addition).map_err(|e| e.at(at as u64))?;
                self.synced_logs.extend(added);
            }
            tag::WAL_DELETION => self.first_tracked_log = Some(cursor.varint64()?),
            tag::WAL_DELETION_2 => {
                let mut deletion = Cursor::new(cursor.length_prefixed()?);
                let first = deletion.varint64().map_err(|e| e.at(at as u64))?;
                self.first_tracked_log = Some(first);
            }
            _ if tag & tag::IGNORABLE != 0 => {
                cursor.length_prefixed()?;
            }
            _ => return Err(Error::unsupported(at, "unknown")),
        }
        Ok(())
    }

    fn decode_new_file(&mut self, cursor: &mut Cursor<'_>, form: Form) -> Result<()> {
        let level = cursor.varint32()?;
        self.new_files
            .push((level, FileMeta::decode(cursor, form)?));
        Ok(())
    }
}

/// Skips a blob file's description or the garbage counted in one (`db/blob/blob_file_addition.cc`,
/// `db/blob/blob_file_garbage.cc`).
fn skip_blob_file(cursor: &mut Cursor<'_>, addition: bool) -> Result<()> {
    const END: u32 = 0;
    const NOT_IGNORABLE: u32 = 1 << 6;
    for _number_count_and_bytes in 0..3 {
        cursor.varint64()?;
    }
    if addition {
        for _checksum_method_and_value in 0..2 {
            cursor.length_prefixed()?;
        }
    }
    loop {
        let at = cursor.offset();
        let field = cursor.varint32()?;
        if field == END {
            return Ok(());
        }
        if field & NOT_IGNORABLE != 0 {
            return Err(Error::unsupported(
                at,
                format!("field {field} of a blob file"),
            ));
        }
        cursor.length_prefixed()?;
    }
}

/// The number and synced size of a WAL file; `None` if it was not synced (`db/wal_edit.cc:WalAddition::DecodeFrom`).
fn wal_addition(cursor: &mut Cursor<'_>) -> Result<Option<(u64, u64)>> {
    const TERMINATE: u32 = 1;
    const SYNCED_SIZE: u32 = 2;
    let number = cursor.varint64()?;
    let mut synced = None;
    loop {
        let at = cursor.offset();
        match cursor.varint32()? {
            TERMINATE => return Ok(synced),
            SYNCED_SIZE => synced = Some((number, cursor.varint64()?)),
            other => {
                return Err(Error::unsupported(
                    at,
                    format!("field {other} of a WAL file"),
                ));
            }
        };
    }
}
