//! Records of jobs in files, to be repeated elsewhere.
//!
//! ```text
//! <folder>/<session>/job.json             the Job
//!                    000011.sst ..  its inputs, hard links where possible
//!                    outputs.json   who compressed the output files, and sums of them, once the job is done
//!                    declined.json  in place of outputs.json if the job must be declined: the reason's code
//! ```
//!
//! Each JSON file is either complete or absent. If `job.json` exists, so do the inputs, also after a crash. A folder
//! without `job.json` is an incomplete record. If a record failed and was removed just before a crash, parts of it may
//! reappear.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rockmill_core::{CancelToken, Error, ErrorKind, JOB_VERSION, Job, ReadAt, Result};
use rockmill_format::compression::Implementation;
use rockmill_format::unique_id::SessionId;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::staging::{StagingDir, file_name};
use rockmill_storage::{FILE_MODE, InputFileReader, Storage, base_name, for_each_piece, read_from};

/// Name of the file that holds the job.
pub const JOB_FILE: &str = "job.json";

/// Name of the file with the [`OutputSums`].
pub const OUTPUTS_FILE: &str = "outputs.json";

/// Name of the file with the code of the reason for which the job must be declined.
pub const DECLINED_FILE: &str = "declined.json";

/// Largest job file that is read.
const MAX_JOB_BYTES: u64 = 256 << 20;

/// The recorded parts of a job's output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSums {
    /// The code that compressed the files ([`CompressionSettings::compressor`]). `None` if they are uncompressed, or in
    /// an older record.
    ///
    /// [`CompressionSettings::compressor`]: rockmill_format::compression::CompressionSettings::compressor
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor: Option<String>,
    /// The files, by name.
    #[serde(flatten)]
    pub files: BTreeMap<String, FileSums>,
}

/// The recorded parts of an output file: an array in JSON. In an older record, it ends before the entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSums(
    /// Size in bytes.
    pub u64,
    /// Unmasked CRC-32C.
    pub u32,
    /// Number of entries, and [`ContentHash::hash`] of them.
    ///
    /// [`ContentHash::hash`]: rockmill_core::ContentHash::hash
    #[serde(default)]
    pub Option<(u64, u64)>,
);

/// How an output compares with the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// The bytes are the same.
    SameBytes,
    /// The files have the same entries. Their bytes were not compared; this sentence gives the reason.
    SameEntries(String),
    /// Something differs: the bytes, or the entries if only these were compared.
    Different,
}

impl OutputSums {
    /// Compares an output with the recorded one. If two versions of a library compressed them, only their entries are
    /// compared. If the record does not name the compressor, the bytes are.
    pub fn compare(&self, recorded: &Self) -> Comparison {
        if self.agrees(recorded, |file| Some((file.0, file.1))) {
            return Comparison::SameBytes;
        }
        match (&recorded.compressor, &self.compressor) {
            (Some(then), Some(now)) if then != now && self.agrees(recorded, |file| file.2) => {
                Comparison::SameEntries(format!(
                    "{then} compressed the first output and {now} this one, so their entries were compared"
                ))
            }
            _ => Comparison::Different,
        }
    }

    /// Whether both have the same files, with the same known values.
    fn agrees<T: PartialEq>(&self, other: &Self, of: impl Fn(&FileSums) -> Option<T>) -> bool {
        let mut pairs = self.files.iter().zip(&other.files);
        let is_same = |((name, file), (other_name, other)): ((&String, _), (&String, _))| {
            of(file).is_some_and(|value| name == other_name && of(other) == Some(value))
        };
        self.files.len() == other.files.len() && pairs.all(is_same)
    }
}

/// Records `job` and its inputs, which are in `input_dir`, in a new folder under `root`. A record that cannot be
/// completed is removed.
///
/// # Errors
/// Storage, also if the folder exists already; Cancelled.
pub fn keep(
    storage: &dyn Storage,
    root: &Path,
    input_dir: &Path,
    job: &Job,
    cancel: &CancelToken,
) -> Result<PathBuf> {
    let dir = root.join(&job.identity.session_id);
    let failed = |e: &io::Error| Error::storage(&base_name(&dir), "create the record's folder", e);
    match storage.list(&dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(&e)),
        Ok(_) => return Err(failed(&io::ErrorKind::AlreadyExists.into())),
    }
    let filled = storage
        .create_dir_all(&dir)
        .map_err(|e| failed(&e))
        .and_then(|()| fill(storage, &dir, input_dir, job, cancel))
        .and_then(|()| sync(storage, root));
    match filled {
        Ok(()) => Ok(dir),
        Err(error) => {
            if let Err(e) = storage.remove_dir_all(&dir) {
                tracing::warn!(folder = %dir.display(), error = %e, "cannot remove an incomplete record");
            }
            Err(error)
        }
    }
}

fn fill(
    storage: &dyn Storage,
    dir: &Path,
    input_dir: &Path,
    job: &Job,
    cancel: &CancelToken,
) -> Result<()> {
    for input in &job.tree.inputs {
        // A copy may take long.
        cancel.check()?;
        storage
            .link_or_copy(&input_dir.join(&input.name), &dir.join(&input.name))
            .map_err(|e| Error::storage(&input.name, "keep it in the record", &e))?;
    }
    sync(storage, dir)?;
    write_json(storage, dir, JOB_FILE, job)
}

fn sync(storage: &dyn Storage, dir: &Path) -> Result<()> {
    storage
        .sync_dir(dir)
        .map_err(|e| Error::storage(&base_name(dir), "sync the folder", &e))
}

/// Adds the compressor of the output to the recorded `job`, in the file of that name, so that a repetition uses the
/// same one.
///
/// # Errors
/// Storage.
pub fn keep_compressor(
    storage: &dyn Storage,
    dir: &Path,
    name: &str,
    job: &Job,
    compressed_by: Implementation,
) -> Result<()> {
    let job = Job {
        compressed_by: Some(compressed_by),
        ..job.clone()
    };
    write_json(storage, dir, name, &job)
}

/// Adds the sums of the output files to a record.
///
/// # Errors
/// Storage.
pub fn keep_outputs(storage: &dyn Storage, dir: &Path, sums: &OutputSums) -> Result<()> {
    write_json(storage, dir, OUTPUTS_FILE, sums)
}

/// The file gets its name only when it is complete, because an incomplete file would look damaged.
fn write_json(
    storage: &dyn Storage,
    dir: &Path,
    name: &str,
    value: &impl serde::Serialize,
) -> Result<()> {
    let json = serde_json::to_vec(value).map_err(|e| Error::internal(e.to_string()))?;
    let half = dir.join(format!("{name}.half"));
    // A crash may have left one.
    let _ = storage.remove_file(&half);
    let write = || {
        let mut file = storage.create(&half, FILE_MODE)?;
        file.append(&json)?;
        file.sync()?;
        storage.rename(&half, &dir.join(name))
    };
    write().map_err(|e| {
        let _ = storage.remove_file(&half);
        Error::storage(name, "write it", &e)
    })?;
    sync(storage, dir)
}

/// Reads a job from its file.
///
/// # Errors
/// Storage; Corruption if the file is not a job of this version or contains an invalid name.
pub fn load(storage: &dyn Storage, path: &Path) -> Result<Job> {
    let job: Job = read_json(storage, path)?;
    let damaged = |what| Error::new(ErrorKind::Corruption, what).in_file(&base_name(path));
    let job = job.of_this_version().map_err(|version| {
        damaged(format!(
            "job of version {version}, which is not 1 to {JOB_VERSION}"
        ))
    })?;
    match fault(&job) {
        Some(what) => Err(damaged(what)),
        None => Ok(job),
    }
}

/// Returns the reason why a job cannot be run. Its names become parts of paths, so they are checked.
fn fault(job: &Job) -> Option<String> {
    let id = &job.identity.session_id;
    if !SessionId::is_encoded(id) {
        return Some(format!("{id:?} is not a session id"));
    }
    let names = job.tree.inputs.iter().map(|input| &input.name);
    let is_bad = |name: &str| matches!(name, "" | "." | "..") || name.contains(['/', '\0']);
    let bad = names.into_iter().find(|name| is_bad(name))?;
    Some(format!("{bad:?} is not a file name"))
}

/// Returns the sums of the recorded output of the job in `dir`, if it was done.
///
/// # Errors
/// Storage, or Corruption if the file is damaged.
pub fn load_outputs(storage: &dyn Storage, dir: &Path) -> Result<Option<OutputSums>> {
    load_if_there(storage, dir, OUTPUTS_FILE)
}

/// Returns the code of the reason for which the job in `dir` must be declined, if any.
///
/// # Errors
/// Storage, or Corruption if the file is damaged.
pub fn load_declined(storage: &dyn Storage, dir: &Path) -> Result<Option<String>> {
    load_if_there(storage, dir, DECLINED_FILE)
}

fn load_if_there<T: serde::de::DeserializeOwned>(
    storage: &dyn Storage,
    dir: &Path,
    file: &str,
) -> Result<Option<T>> {
    let names = storage
        .list(dir)
        .map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
    if !names.iter().any(|name| name == file) {
        return Ok(None);
    }
    read_json(storage, &dir.join(file)).map(Some)
}

fn read_json<T: serde::de::DeserializeOwned>(storage: &dyn Storage, path: &Path) -> Result<T> {
    let bytes = read_from(storage, path, 0, MAX_JOB_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|e| Error {
        offset: offset_of(&bytes, e.line(), e.column()),
        ..Error::new(
            ErrorKind::Corruption,
            format!("not understood as part of a recorded job: {e}"),
        )
        .in_file(&base_name(path))
    })
}

/// Converts a line and a column in bytes, both counted from 1, into an offset. Line 0 has none.
fn offset_of(bytes: &[u8], line: usize, column: usize) -> Option<u64> {
    let lines_before = line.checked_sub(1)?;
    let before: usize = bytes
        .split_inclusive(|&b| b == b'\n')
        .take(lines_before)
        .map(<[u8]>::len)
        .sum();
    Some((before + column.saturating_sub(1)) as u64)
}

/// Returns the sums of finished files.
///
/// # Errors
/// Storage, Cancelled.
pub fn sum_outputs(
    storage: &dyn Storage,
    staging: &StagingDir,
    outcome: &Outcome,
    cancel: &CancelToken,
) -> Result<OutputSums> {
    let mut sums = OutputSums {
        compressor: outcome.compressor.clone(),
        ..OutputSums::default()
    };
    for file in &outcome.files {
        let reader = InputFileReader::open(storage, &staging.files().file(file.number))?;
        let mut crc = 0;
        for_each_piece(&reader, cancel, |piece| {
            crc = crc32c::crc32c_append(crc, piece)
        })?;
        let content = (file.content.entries(), file.content.hash());
        let file_sums = FileSums(reader.len(), crc, Some(content));
        sums.files.insert(file_name(file.number), file_sums);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rockmill_core::{Hints, Identity, InputFile, JobInfo, TreeState};

    use super::*;
    use rockmill_storage::LocalStorage;

    const SESSION: &str = "0123456789ABCDEFGHIJ";

    fn job(session_id: &str, input: &str) -> Job {
        Job {
            version: JOB_VERSION,
            input: Vec::new(),
            info: JobInfo {
                db_name: String::new(),
                db_session_id: String::new(),
                cf_id: 0,
                job_id: 0,
                reason: 0,
                is_full_compaction: true,
                is_manual_compaction: true,
                is_bottommost_level: true,
                base_input_level: 0,
                output_level: 1,
                is_in_bottom_pool: false,
                rocksdb_version: None,
                plugins: None,
                picked_compression: None,
            },
            options: String::new(),
            tree: TreeState {
                inputs: vec![InputFile {
                    name: input.to_owned(),
                    size: 0,
                    level: 0,
                    smallest: Vec::new(),
                    largest: Vec::new(),
                    epoch_number: 1,
                    oldest_ancester_time: 0,
                    unique_id: None,
                    largest_seqno: Some(7),
                }],
                levels: Vec::new(),
                deeper: Vec::new(),
                deeper_bounds: Vec::new(),
            },
            hints: Hints::default(),
            identity: Identity {
                session_id: session_id.to_owned(),
                host: String::new(),
                checksum_seed: 0,
            },
            unix_time: 0,
            compressed_by: None,
        }
    }

    fn load_json(json: &[u8]) -> Result<Job> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(JOB_FILE);
        fs::write(&path, json).expect("write");
        load(&LocalStorage, &path)
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let loaded = |session_id, input| {
            load_json(&serde_json::to_vec(&job(session_id, input)).expect("JSON"))
        };
        assert_eq!(
            loaded(SESSION, "000011.sst"),
            Ok(job(SESSION, "000011.sst"))
        );
        let long = format!("{SESSION}0");
        for id in ["", "../../../../../../ab", "0123456789abcdefghij", &long] {
            let error = loaded(id, "000011.sst").expect_err(id);
            assert_eq!(error.kind, ErrorKind::Corruption);
            assert_eq!(error.file.as_deref(), Some(JOB_FILE));
        }
        for name in ["", ".", "..", "../a", "/a", "a\0b"] {
            let error = loaded(SESSION, name).expect_err(name);
            assert_eq!(error.kind, ErrorKind::Corruption);
            assert_eq!(
                (error.file.as_deref(), error.offset),
                (Some(JOB_FILE), None)
            );
        }
    }

    #[test]
    fn bad_json_is_reported_where_it_lies() {
        let error = load_json(b"{\n \"version\": x}").expect_err("no JSON");
        assert_eq!(
            (error.kind, error.offset),
            (ErrorKind::Corruption, Some(14))
        );
        let error = load_json(b"").expect_err("no JSON");
        assert_eq!((error.kind, error.offset), (ErrorKind::Corruption, Some(0)));
    }

    #[test]
    fn half_a_record_goes_and_an_older_one_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, db) = (dir.path().join("jobs"), dir.path().join("db"));
        fs::create_dir(&db).expect("make a folder");
        let job = job(SESSION, "000011.sst");
        let error =
            keep(&LocalStorage, &root, &db, &job, &CancelToken::new()).expect_err("no input");
        assert_eq!(error.kind, ErrorKind::Storage);
        assert!(!root.join(SESSION).exists());
        fs::write(db.join("000011.sst"), "input").expect("write");
        let kept = keep(&LocalStorage, &root, &db, &job, &CancelToken::new()).expect("kept");
        assert_eq!(load(&LocalStorage, &kept.join(JOB_FILE)), Ok(job.clone()));
        let error =
            keep(&LocalStorage, &root, &db, &job, &CancelToken::new()).expect_err("kept already");
        assert_eq!(error.kind, ErrorKind::Storage);
        assert!(kept.join(JOB_FILE).exists() && kept.join("000011.sst").exists());
    }

    #[test]
    fn a_job_of_the_first_version_was_compressed_by_libraries() {
        let mut old = serde_json::to_value(job(SESSION, "000011.sst")).expect("a job");
        let fields = old.as_object_mut().expect("fields");
        fields.remove("compressed_by");
        fields.insert("version".to_owned(), 1.into());
        let loaded = load_json(&serde_json::to_vec(&old).expect("text")).expect("an old job");
        assert_eq!(loaded.compressed_by, Some(Implementation::Library));
    }

    fn sums(compressor: Option<&str>, crc: u32, entries: Option<(u64, u64)>) -> OutputSums {
        OutputSums {
            compressor: compressor.map(str::to_owned),
            files: [("000001.sst".to_owned(), FileSums(1, crc, entries))].into(),
        }
    }

    #[test]
    fn entries_are_compared_if_another_version_of_a_library_compressed_them() {
        let (old, new) = (Some("lz4/library-1.9.4"), Some("lz4/library-1.10.0"));
        let (entries, others) = (Some((7, 1 << 60)), Some((7, 1)));
        let compared = |compressor, crc, other_entries| {
            sums(compressor, crc, other_entries).compare(&sums(old, 2, entries))
        };
        assert_eq!(compared(old, 2, entries), Comparison::SameBytes);
        assert_eq!(compared(new, 2, entries), Comparison::SameBytes);
        assert_eq!(compared(old, 3, entries), Comparison::Different);
        assert_eq!(compared(new, 3, others), Comparison::Different);
        let Comparison::SameEntries(why) = compared(new, 3, entries) else {
            panic!("the entries are the same");
        };
        assert!(why.contains("lz4/library-1.9.4") && why.contains("lz4/library-1.10.0"));
        let mut more = sums(new, 3, entries);
        more.files
            .insert("000002.sst".to_owned(), FileSums(1, 1, entries));
        assert_eq!(more.compare(&sums(old, 2, entries)), Comparison::Different);
        assert_eq!(sums(old, 2, entries).compare(&more), Comparison::Different);
        let unknown = |crc| sums(new, crc, None).compare(&sums(old, 2, None));
        assert_eq!(unknown(2), Comparison::SameBytes);
        assert_eq!(unknown(3), Comparison::Different);
    }

    #[test]
    fn in_an_older_record_it_is_unknown_who_compressed() {
        let read = |json| serde_json::from_str::<OutputSums>(json).expect("it is a record");
        let old = read("{\"000001.sst\":[1,2]}");
        assert_eq!(old, sums(None, 2, None));
        let now = |crc| sums(Some("lz4/library-1.10.0"), crc, Some((7, 9)));
        assert_eq!(now(2).compare(&old), Comparison::SameBytes);
        assert_eq!(now(3).compare(&old), Comparison::Different);
        let text = serde_json::to_string(&now(2)).expect("JSON");
        assert_eq!(read(&text), now(2));
    }

    #[test]
    fn half_a_file_that_a_crash_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().expect("a folder");
        let half = dir.path().join(format!("{OUTPUTS_FILE}.half"));
        fs::write(&half, "{").expect("write");
        assert_eq!(load_outputs(&LocalStorage, dir.path()), Ok(None));
        let sums = sums(None, 2, None);
        let job = job(SESSION, "000011.sst");
        let compressed_by = Implementation::Rockmill1;
        keep_compressor(&LocalStorage, dir.path(), JOB_FILE, &job, compressed_by).expect("kept");
        keep_outputs(&LocalStorage, dir.path(), &sums).expect("kept");
        let kept = load(&LocalStorage, &dir.path().join(JOB_FILE)).expect("sound");
        assert_eq!(kept.compressed_by, Some(compressed_by));
        assert_eq!(load_outputs(&LocalStorage, dir.path()), Ok(Some(sums)));
        assert!(!half.exists());
    }
}
