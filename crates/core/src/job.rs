//! One compaction as a value.

use std::sync::Arc;

use rockmill_format::compression::Implementation;
use serde::{Deserialize, Serialize};

use crate::comparators::Comparators;
use crate::merge_operators::MergeOperator;
use crate::plugins::Plugins;

/// Layout version of a serialised [`Job`].
pub const JOB_VERSION: u32 = 2;

/// The version before there was [`Job::compressed_by`]: libraries compressed all blocks.
const LIBRARY_VERSION: u32 = 1;

/// All that determines a compaction's output besides the input files' bytes.
///
/// Created anew for each attempt, because identity and clock differ. It can be stored and repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// [`JOB_VERSION`].
    pub version: u32,
    /// RocksDB's `CompactionServiceInput` message.
    #[serde(with = "hex")]
    pub input: Vec<u8>,
    /// Facts that RocksDB reports about the job beside the message.
    pub info: JobInfo,
    /// Text of the OPTIONS file that the message names.
    pub options: String,
    /// The input files and the rest of the tree, as the MANIFEST has them.
    pub tree: TreeState,
    /// Settings that the OPTIONS file lacks.
    pub hints: Hints,
    /// Names in the output files.
    pub identity: Identity,
    /// Seconds since 1970 that the output files give as their creation time.
    pub unix_time: u64,
    /// Compressor of the output's blocks. `None`: chosen at the start of the job from the available devices.
    #[serde(default, with = "implementation")]
    pub compressed_by: Option<Implementation>,
}

impl Job {
    /// Converts the job of a file of this version or an older one.
    ///
    /// # Errors
    /// The version of a file that is none of these.
    pub fn of_this_version(self) -> Result<Self, u32> {
        match self.version {
            JOB_VERSION => Ok(self),
            LIBRARY_VERSION => Ok(Self {
                version: JOB_VERSION,
                compressed_by: Some(Implementation::Library),
                ..self
            }),
            version => Err(version),
        }
    }
}

mod implementation {
    use super::{Deserialize, Implementation};
    use serde::{Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(
        value: &Option<Implementation>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Implementation::name).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Implementation>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        let known = |name: String| {
            Implementation::from_name(&name)
                .ok_or_else(|| de::Error::custom(format!("unknown compressor {name:?}")))
        };
        name.map(known).transpose()
    }
}

/// `CompactionServiceJobInfo` (`include/rocksdb/options.h`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Path of the database, for messages only.
    pub db_name: String,
    /// Session of the database that offers the job.
    pub db_session_id: String,
    /// Column family; [`JobInfo::UNKNOWN_CF_ID`] from RocksDB before 10.4.
    pub cf_id: u32,
    /// `base_job_id << 32 | subcompaction`.
    pub job_id: u64,
    /// `CompactionReason` as its number; [`JobInfo::UNKNOWN_REASON`] from RocksDB before 9.7. Without it, the next three
    /// members do not come from RocksDB either.
    pub reason: i32,
    /// Whether the compaction covers the whole column family.
    pub is_full_compaction: bool,
    /// Whether the application has requested it.
    pub is_manual_compaction: bool,
    /// Whether no deeper level overlaps the inputs.
    pub is_bottommost_level: bool,
    /// Lowest input level; [`JobInfo::UNKNOWN_LEVEL`] from RocksDB before 10.2.
    pub base_input_level: i32,
    /// Level of the output; [`JobInfo::UNKNOWN_LEVEL`] from RocksDB before 10.2.
    pub output_level: i32,
    /// Whether RocksDB runs it in the pool of bottommost compactions (`Env::Priority::BOTTOM`).
    #[serde(default)]
    pub is_in_bottom_pool: bool,
    /// Version of the RocksDB that offers the job, if the door knows it. The OPTIONS file must have the same version.
    #[serde(skip)]
    pub rocksdb_version: Option<[u32; 3]>,
    /// Objects of the application that the job may call, if it has attached some. A recorded job has none.
    #[serde(skip)]
    pub plugins: Option<Arc<Plugins>>,
    /// `CompressionType` that RocksDB has picked for the output, as its number, if the door knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picked_compression: Option<u8>,
}

impl JobInfo {
    /// `cf_id` from a RocksDB that does not pass it. No column family has it.
    pub const UNKNOWN_CF_ID: u32 = u32::MAX;

    /// Levels from a RocksDB that does not pass them.
    pub const UNKNOWN_LEVEL: i32 = -1;

    /// `reason` from a RocksDB that does not pass it.
    pub const UNKNOWN_REASON: i32 = -1;

    /// The job's number in RocksDB's LOG (`[JOB 7]`), of a `job_id`. Its subcompactions share it.
    pub fn log_number(job_id: u64) -> u64 {
        job_id >> u32::BITS
    }
}

/// The column family's tree as far as the job needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeState {
    /// The input files in the order of the message.
    pub inputs: Vec<InputFile>,
    /// Size and number of files of each level that has any, ascending.
    pub levels: Vec<LevelSummary>,
    /// Files of deeper levels than the output's that overlap the inputs' key range, by level and key. Behind them, again by
    /// level and key, those that an edit has deleted which RocksDB may take back.
    #[serde(rename = "beneath")]
    pub deeper: Vec<(u32, Vec<FileSummary>)>,
    /// Smallest and largest user keys of all files of deeper levels, for a job that asks the application's comparator. Under
    /// it, other files may overlap the inputs than by their bytes.
    #[serde(skip)]
    pub deeper_bounds: Vec<Vec<u8>>,
}

/// An input file as the MANIFEST describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Base name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Level.
    pub level: u32,
    /// Smallest internal key.
    #[serde(with = "hex")]
    pub smallest: Vec<u8>,
    /// Largest internal key.
    #[serde(with = "hex")]
    pub largest: Vec<u8>,
    /// Position in the order of level-0 files.
    pub epoch_number: u64,
    /// Seconds since 1970 of the oldest data, 0 if unknown.
    pub oldest_ancester_time: u64,
    /// Internal unique id, if the MANIFEST has it.
    pub unique_id: Option<[u64; 2]>,
    /// Largest sequence number, which all entries of an ingested file have. Records of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_seqno: Option<u64>,
}

/// Size of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelSummary {
    /// The level.
    pub level: u32,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A file that is not an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// Smallest user key.
    #[serde(with = "hex")]
    pub smallest: Vec<u8>,
    /// Largest user key.
    #[serde(with = "hex")]
    pub largest: Vec<u8>,
    /// Bytes.
    pub size: u64,
}

/// Settings that the OPTIONS file lacks. For a database that was configured through RocksDB's C API, it names a filter
/// policy without its number of bits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// Thousandths of a bit that a filter has for each key.
    pub filter_millibits_per_key: Option<u32>,
    /// The column family's merge operator, as the user states it. Its name in the OPTIONS file proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_operator: Option<MergeOperator>,
    /// Whether it is stated for this column family by name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_operator_of_family: bool,
    /// Comparators of applications whose order the user states.
    #[serde(default, skip_serializing_if = "Comparators::is_empty")]
    pub comparators: Comparators,
}

/// Names in output files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Session id in RocksDB's form, 20 characters; random for each attempt, so that file numbers
    /// can count from 1 within it.
    pub session_id: String,
    /// Host name that the properties give.
    pub host: String,
    /// Seed of the files' base context checksums.
    pub checksum_seed: u64,
}

/// Byte strings as lower-case hex.
mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = bytes
            .iter()
            .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
            .map(char::from);
        to.serialize_str(&digits.collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.as_bytes();
        if digits.len() % 2 != 0 {
            return Err(D::Error::custom("odd number of hex digits"));
        }
        digits
            .chunks(2)
            .map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?))
            .collect::<Option<_>>()
            .ok_or_else(|| D::Error::custom("not a hex digit"))
    }

    fn digit(byte: u8) -> Option<u8> {
        char::from(byte).to_digit(16).map(|d| d as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_survive_serialisation() {
        let job = Job {
            version: JOB_VERSION,
            input: vec![0, 1, 0xff],
            info: JobInfo {
                db_name: "db".to_owned(),
                db_session_id: "S".to_owned(),
                cf_id: 1,
                job_id: 1 << 40,
                reason: 9,
                is_full_compaction: true,
                is_manual_compaction: false,
                is_bottommost_level: true,
                base_input_level: 0,
                output_level: 6,
                is_in_bottom_pool: false,
                rocksdb_version: None,
                plugins: None,
                picked_compression: None,
            },
            options: "[Version]\n".to_owned(),
            tree: TreeState {
                inputs: vec![InputFile {
                    name: "000009.sst".to_owned(),
                    size: 10,
                    level: 0,
                    smallest: vec![1],
                    largest: vec![2],
                    epoch_number: 3,
                    oldest_ancester_time: 4,
                    unique_id: Some([5, 6]),
                    largest_seqno: Some(7),
                }],
                levels: vec![],
                deeper: vec![(6, vec![])],
                deeper_bounds: vec![],
            },
            hints: Hints::default(),
            identity: Identity {
                session_id: "A".repeat(20),
                host: "h".to_owned(),
                checksum_seed: u64::MAX,
            },
            unix_time: 1,
            compressed_by: Some(Implementation::Rockmill1),
        };
        let text = serde_json::to_string(&job).expect("serialises");
        assert_eq!(serde_json::from_str::<Job>(&text).expect("parses"), job);
        assert!(serde_json::from_str::<Job>(&text.replace("0001ff", "0001f")).is_err());
        assert!(serde_json::from_str::<Job>(&text.replace("0001ff", "0001fg")).is_err());
    }
}
