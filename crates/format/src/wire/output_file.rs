//! One file that a worker wrote.

use super::properties::PropertyValue;
use super::value::record;
use crate::manifest::{Temperature, UNKNOWN_CHECKSUM_FUNC_NAME};

record! {
    added: output_file;
    /// An output SST file (`CompactionServiceOutputFile`, `db/compaction/compaction_job.h`).
    ///
    /// RocksDB installs most of this without verification: bounds that are too narrow hide keys permanently.
    pub struct OutputFile {
        /// Base name within the result's `output_path`.
        file_name: String,
        /// Length in bytes.
        file_size: u64,
        /// Smallest sequence number in the file, as written there.
        smallest_seqno: u64,
        /// Largest sequence number in the file, as written there.
        largest_seqno: u64,
        /// First internal key, with its eight trailing bytes.
        smallest_internal_key: Vec<u8>,
        /// Last internal key, with its eight trailing bytes.
        largest_internal_key: Vec<u8>,
        /// Seconds since 1970 of the oldest data that went into the file; 0 if unknown. RocksDB misspells the name.
        oldest_ancester_time: u64,
        /// Seconds since 1970 of the file's creation; 0 if unknown.
        file_creation_time: u64,
        /// Order of the file within level 0; from 1 on, 0 makes RocksDB fail.
        epoch_number: u64,
        /// Checksum of the whole file; empty if there is none.
        file_checksum: Vec<u8>,
        /// Name of the function that made `file_checksum`; `Unknown` if there is none.
        file_checksum_func_name: Vec<u8>,
        /// Hash over all entries, compared only with `paranoid_file_checks`.
        paranoid_hash: u64,
        /// Whether to compact the file again soon. Always written: the C++ member has no default.
        marked_for_compaction: bool,
        /// Unique id of the table; zeros if unknown.
        unique_id: [u64; 2],
        /// Table properties under their C++ member names, see [`super::property_kind`].
        table_properties: Vec<(String, PropertyValue)>,
        /// Whether the file belongs to the level above the output level. Always written: the C++
        /// member has no default.
        is_proximal_level_output: bool,
        /// Temperature requested from the file system.
        file_temperature: Temperature,
    }
}

impl Default for OutputFile {
    fn default() -> Self {
        Self {
            file_name: String::new(),
            file_size: 0,
            smallest_seqno: 0,
            largest_seqno: 0,
            smallest_internal_key: Vec::new(),
            largest_internal_key: Vec::new(),
            oldest_ancester_time: 0,
            file_creation_time: 0,
            epoch_number: 0,
            file_checksum: Vec::new(),
            file_checksum_func_name: UNKNOWN_CHECKSUM_FUNC_NAME.to_vec(),
            paranoid_hash: 0,
            marked_for_compaction: false,
            unique_id: [0; 2],
            table_properties: Vec::new(),
            is_proximal_level_output: false,
            file_temperature: Temperature::Unknown,
        }
    }
}
