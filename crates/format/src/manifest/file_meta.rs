//! Description of one SST file in the MANIFEST.

use crate::coding::Cursor;
use crate::error::{Error, Result};
use crate::key::{MAX_SEQUENCE, TAG_SIZE};

/// Name of the checksum function of a file that has no checksum
/// (`include/rocksdb/file_checksum.h:kUnknownFileChecksumFuncName`).
pub const UNKNOWN_CHECKSUM_FUNC_NAME: &[u8] = b"Unknown";

/// Largest index into `cf_paths` (two bits next to the file number).
const MAX_PATH_ID: u8 = 3;

/// Requested storage temperature of a file (`include/rocksdb/types.h:Temperature`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Temperature {
    /// Not said.
    #[default]
    Unknown,
    /// Hottest.
    Hot,
    /// Below hot.
    Warm,
    /// Below warm.
    Cool,
    /// Below cool.
    Cold,
    /// Coldest.
    Ice,
}

impl Temperature {
    /// All temperatures: `Unknown`, then from the hottest to the coldest.
    pub const ALL: [Self; 6] = [
        Self::Unknown,
        Self::Hot,
        Self::Warm,
        Self::Cool,
        Self::Cold,
        Self::Ice,
    ];

    /// Its byte in a MANIFEST.
    pub fn byte(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Hot => 0x04,
            Self::Warm => 0x08,
            Self::Cool => 0x0a,
            Self::Cold => 0x0c,
            Self::Ice => 0x10,
        }
    }

    /// The temperature of a byte; `Unknown` for other bytes, as in RocksDB.
    pub fn from_byte(byte: u8) -> Self {
        let known = Self::ALL.into_iter().find(|t| t.byte() == byte);
        known.unwrap_or_default()
    }

    /// Its name in option texts, such as `kCold`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "kUnknown",
            Self::Hot => "kHot",
            Self::Warm => "kWarm",
            Self::Cool => "kCool",
            Self::Cold => "kCold",
            Self::Ice => "kIce",
        }
    }

    /// The temperature with this name in option texts.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
}

/// One SST file (`db/version_edit.h:FileMetaData`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// File number.
    pub number: u64,
    /// Length in bytes.
    pub size: u64,
    /// Smallest internal key.
    pub smallest: Vec<u8>,
    /// Largest internal key.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub smallest_seqno: u64,
    /// Largest sequence number.
    pub largest_seqno: u64,
    /// Index of the file's directory in `cf_paths`.
    pub path_id: u8,
    /// Whether RocksDB has marked the file for compaction soon.
    pub marked_for_compaction: bool,
    /// Oldest blob file that the file refers to.
    pub oldest_blob_file: Option<u64>,
    /// Seconds since 1970 of the oldest data that went into the file; 0 if unknown.
    pub oldest_ancester_time: u64,
    /// Seconds since 1970 of the file's creation; 0 if unknown.
    pub file_creation_time: u64,
    /// Checksum of the whole file; empty if there is none.
    pub file_checksum: Vec<u8>,
    /// Name of the function that made `file_checksum`; `Unknown` if there is none.
    pub file_checksum_func_name: Vec<u8>,
    /// Temperature that was requested from the file system.
    pub temperature: Temperature,
    /// Unique id of the table.
    pub unique_id: Option<[u64; 2]>,
    /// Order of the file within level 0; 0 if unknown.
    pub epoch_number: u64,
    /// Estimated bytes of deeper levels that the file's range deletions cover.
    pub compensated_range_deletion_size: u64,
    /// Bytes from the end of the data blocks to the end of the file; 0 if unknown.
    pub tail_size: u64,
    /// Whether user-defined timestamps, if the comparator has them, are in the file. If not, they
    /// are not in `smallest` and `largest` either.
    pub user_defined_timestamps_persisted: bool,
    /// Whether the MANIFEST has a smallest or a largest timestamp.
    pub has_timestamps: bool,
}

impl Default for FileMeta {
    fn default() -> Self {
        Self {
            number: 0,
            size: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            smallest_seqno: MAX_SEQUENCE,
            largest_seqno: 0,
            path_id: 0,
            marked_for_compaction: false,
            oldest_blob_file: None,
            oldest_ancester_time: 0,
            file_creation_time: 0,
            file_checksum: Vec::new(),
            file_checksum_func_name: UNKNOWN_CHECKSUM_FUNC_NAME.to_vec(),
            temperature: Temperature::Unknown,
            unique_id: None,
            epoch_number: 0,
            compensated_range_deletion_size: 0,
            tail_size: 0,
            user_defined_timestamps_persisted: true,
            has_timestamps: false,
        }
    }
}

/// Tags of the fields behind a `kNewFile4` (`version_edit.h:NewFileCustomTag`).
pub(super) mod field {
    pub const TERMINATE: u32 = 1;
    pub const NEED_COMPACTION: u32 = 2;
    pub const MIN_LOG_NUMBER_TO_KEEP: u32 = 3;
    pub const OLDEST_BLOB_FILE_NUMBER: u32 = 4;
    pub const OLDEST_ANCESTOR_TIME: u32 = 5;
    pub const FILE_CREATION_TIME: u32 = 6;
    pub const FILE_CHECKSUM: u32 = 7;
    pub const FILE_CHECKSUM_FUNC_NAME: u32 = 8;
    pub const TEMPERATURE: u32 = 9;
    pub const MIN_TIMESTAMP: u32 = 10;
    pub const MAX_TIMESTAMP: u32 = 11;
    pub const UNIQUE_ID: u32 = 12;
    pub const EPOCH_NUMBER: u32 = 13;
    pub const COMPENSATED_RANGE_DELETION_SIZE: u32 = 14;
    pub const TAIL_SIZE: u32 = 15;
    pub const USER_DEFINED_TIMESTAMPS_PERSISTED: u32 = 16;
    /// An unknown tag with this bit must not be skipped.
    pub const NOT_IGNORABLE: u32 = 1 << 6;
    pub const PATH_ID: u32 = NOT_IGNORABLE + 1;
}

/// Form of the fixed part of a file's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `kNewFile`: neither sequence numbers nor path.
    Plain,
    /// `kNewFile2` and `kNewFile4`: with sequence numbers.
    Sequences,
    /// `kNewFile3`: with sequence numbers and path.
    Path,
}

impl FileMeta {
    /// Reads the fixed part of an entry, behind the level.
    pub(super) fn decode(cursor: &mut Cursor<'_>, form: Form) -> Result<Self> {
        let mut file = Self {
            number: cursor.varint64()?,
            ..Self::default()
        };
        if form == Form::Path {
            let at = cursor.offset();
            file.path_id = u8::try_from(cursor.varint32()?)
                .ok()
                .filter(|&id| id <= MAX_PATH_ID)
                .ok_or_else(|| Error::corruption(at, "path id out of range"))?;
        }
        file.size = cursor.varint64()?;
        file.smallest = internal_key(cursor)?;
        file.largest = internal_key(cursor)?;
        if form != Form::Plain {
            file.smallest_seqno = cursor.varint64()?;
            file.largest_seqno = cursor.varint64()?;
        }
        Ok(file)
    }

    /// Reads the fields behind the fixed part of a `kNewFile4`. Returns the minimum log number to keep, which old
    /// versions store there.
    pub(super) fn decode_fields(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<u64>> {
        let mut min_log_number_to_keep = None;
        loop {
            let at = cursor.offset();
            let tag = cursor.varint32()?;
            if tag == field::TERMINATE {
                return Ok(min_log_number_to_keep);
            }
            let value = cursor.length_prefixed()?;
            let base = cursor.offset() - value.len();
            let mut value = Cursor::new(value);
            if tag == field::MIN_LOG_NUMBER_TO_KEEP {
                let number = value.u64().map_err(|error| error.at(base as u64))?;
                min_log_number_to_keep = Some(number);
            } else if !self.set(tag, &mut value).map_err(|e| e.at(base as u64))?
                && tag & field::NOT_IGNORABLE != 0
            {
                return Err(Error::unsupported(at, format!("field {tag} of a file")));
            }
        }
    }

    /// Sets one field; `false` if the tag is unknown or not needed.
    fn set(&mut self, tag: u32, value: &mut Cursor<'_>) -> Result<bool> {
        match tag {
            field::NEED_COMPACTION => self.marked_for_compaction = single_byte(value)? == 1,
            field::OLDEST_BLOB_FILE_NUMBER => {
                self.oldest_blob_file = Some(value.varint64()?).filter(|&n| n != 0);
            }
            field::OLDEST_ANCESTOR_TIME => self.oldest_ancester_time = value.varint64()?,
            field::FILE_CREATION_TIME => self.file_creation_time = value.varint64()?,
            field::FILE_CHECKSUM => self.file_checksum = value.rest().to_vec(),
            field::FILE_CHECKSUM_FUNC_NAME => {
                self.file_checksum_func_name = value.rest().to_vec();
            }
            field::TEMPERATURE => self.temperature = Temperature::from_byte(single_byte(value)?),
            field::MIN_TIMESTAMP | field::MAX_TIMESTAMP => self.has_timestamps = true,
            field::UNIQUE_ID => {
                let id = [value.u64()?, value.u64()?];
                if !value.is_empty() {
                    return Err(Error::corruption(0, "unique id of a wrong length"));
                }
                self.unique_id = Some(id).filter(|id| *id != [0; 2]);
            }
            field::EPOCH_NUMBER => self.epoch_number = value.varint64()?,
            field::COMPENSATED_RANGE_DELETION_SIZE => {
                self.compensated_range_deletion_size = value.varint64()?;
            }
            field::TAIL_SIZE => self.tail_size = value.varint64()?,
            field::USER_DEFINED_TIMESTAMPS_PERSISTED => {
                self.user_defined_timestamps_persisted = single_byte(value)? == 1;
            }
            field::PATH_ID => {
                self.path_id = single_byte(value)?;
                if self.path_id > MAX_PATH_ID {
                    return Err(Error::corruption(0, "path id out of range"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The only byte of a field.
fn single_byte(value: &mut Cursor<'_>) -> Result<u8> {
    match value.rest() {
        [byte] => Ok(*byte),
        rest => {
            let what = format!("field of {} bytes in place of one", rest.len());
            Err(Error::corruption(0, what))
        }
    }
}

/// An internal key behind its length.
pub(super) fn internal_key(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let at = cursor.offset();
    let key = cursor.length_prefixed()?;
    if key.len() < TAG_SIZE {
        return Err(Error::corruption(at, "internal key shorter than 8 bytes"));
    }
    Ok(key.to_vec())
}
