//! Jobs kept as files, to be repeated elsewhere.
//!
//! ```text
//! <folder>/<session>-<job>/job.json       the Job
//!                          000011.sst ..  its inputs, hard links where possible
//!                          outputs.json   what came out, once it is done
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rockmill_core::{Error, JOB_VERSION, Job, OutputFile, ReadAt, Result};

use crate::staging::{StagingDir, file_name};
use crate::storage::{InputFileReader, Storage, base_name, read_from};

/// Name of the file that holds the job.
pub const JOB_FILE: &str = "job.json";

/// Name of the file that says what came out.
pub const OUTPUTS_FILE: &str = "outputs.json";

/// Largest job file that is read.
const MAX_JOB_BYTES: u64 = 256 << 20;

/// Size and unmasked CRC-32C of each output file, by name.
pub type OutputSums = BTreeMap<String, (u64, u32)>;

/// Keeps `job` and its inputs, which lie in `input_dir`, in a new folder below `root`.
///
/// # Errors
/// Storage.
pub fn keep(storage: &dyn Storage, root: &Path, input_dir: &Path, job: &Job) -> Result<PathBuf> {
    let dir = root.join(&job.identity.session_id);
    let failed = |what: &str, e: &std::io::Error| Error::storage(&base_name(&dir), what, e);
    storage
        .create_dir_all(&dir)
        .map_err(|e| failed("make the record's folder", &e))?;
    for input in &job.tree.inputs {
        let to = dir.join(&input.name);
        storage
            .link_or_copy(&input_dir.join(&input.name), &to)
            .map_err(|e| failed("keep an input in it", &e))?;
    }
    write_json(storage, &dir.join(JOB_FILE), job)?;
    Ok(dir)
}

/// Adds what came out to a record.
///
/// # Errors
/// Storage.
pub fn keep_outputs(storage: &dyn Storage, dir: &Path, sums: &OutputSums) -> Result<()> {
    write_json(storage, &dir.join(OUTPUTS_FILE), sums)
}

fn write_json(storage: &dyn Storage, path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let name = base_name(path);
    let json = serde_json::to_vec(value).map_err(|e| Error::internal(e.to_string()))?;
    let mut file = storage
        .create(path)
        .map_err(|e| Error::storage(&name, "make it", &e))?;
    file.append(&json)
        .and_then(|()| file.sync())
        .map_err(|e| Error::storage(&name, "write it", &e))
}

/// Reads a job from its file.
///
/// # Errors
/// Storage, or Corruption if it is not a job of this version.
pub fn load(storage: &dyn Storage, path: &Path) -> Result<Job> {
    let job: Job = read_json(storage, path)?;
    if job.version != JOB_VERSION {
        return Err(Error::corruption(
            &base_name(path),
            0,
            format!("job of version {}, not {JOB_VERSION}", job.version),
        ));
    }
    let bad_name = |name: &str| name.is_empty() || name.contains('/') || name == "..";
    match job.tree.inputs.iter().find(|input| bad_name(&input.name)) {
        Some(input) => Err(Error::corruption(
            &base_name(path),
            0,
            format!("{:?} is no file name", input.name),
        )),
        None => Ok(job),
    }
}

/// What came out when the job in `dir` was recorded, if it was done.
///
/// # Errors
/// Storage, or Corruption if the file is damaged.
pub fn load_outputs(storage: &dyn Storage, dir: &Path) -> Result<Option<OutputSums>> {
    let names = storage
        .list(dir)
        .map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
    if !names.iter().any(|name| name == OUTPUTS_FILE) {
        return Ok(None);
    }
    read_json(storage, &dir.join(OUTPUTS_FILE)).map(Some)
}

fn read_json<T: serde::de::DeserializeOwned>(storage: &dyn Storage, path: &Path) -> Result<T> {
    let bytes = read_from(storage, path, 0, MAX_JOB_BYTES)?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::corruption(&base_name(path), e.column() as u64, e.to_string()))
}

/// Sizes and checksums of finished files.
///
/// # Errors
/// Storage.
pub fn sum_outputs(
    storage: &dyn Storage,
    staging: &StagingDir,
    files: &[OutputFile],
) -> Result<OutputSums> {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut sums = OutputSums::new();
    for file in files {
        let reader = InputFileReader::open(storage, &staging.file(file.number))?;
        let mut crc = 0;
        let mut at = 0;
        let mut chunk = Vec::new();
        while at < reader.len() {
            chunk.resize(CHUNK_BYTES.min((reader.len() - at) as usize), 0);
            reader.read_exact_at(&mut chunk, at)?;
            crc = crc32c::crc32c_append(crc, &chunk);
            at += chunk.len() as u64;
        }
        sums.insert(file_name(file.number), (reader.len(), crc));
    }
    Ok(sums)
}
