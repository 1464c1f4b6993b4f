//! Makes small jobs for `crates/compaction/tests/recorded_jobs`, which keeps them with their output bytes.
//!
//! * `random` makes databases of any kind from a seed, `special` makes rare ones.
//! * `declined` makes a job for every decline reason.
//! * `recorder` records the jobs that RocksDB offers.

mod declined;
mod random;
mod recorder;
mod special;

use std::fs;
use std::path::{Path, PathBuf};

use rockmill_compaction::record::{self, DECLINED_FILE};
use rockmill_core::{CancelToken, Identity, Job};
use rockmill_format::unique_id::SessionId;
use rockmill_storage::LocalStorage;
use rust_rocksdb::{CompactionOptions, DB, Options};

use recorder::Recorder;

/// Makes all jobs, each in a folder in `root`.
///
/// # Errors
///
/// The name of the first job that cannot be made, and the cause.
pub fn make(root: &Path) -> Result<(), String> {
    let recorder = Recorder::new(root);
    for number in 0..random::DATABASES {
        random::make(&recorder, number).map_err(|e| format!("random database {number}: {e}"))?;
    }
    for (name, make) in special::ALL {
        make(&recorder, name).map_err(|e| format!("{name}: {e}"))?;
    }
    declined::make(&recorder).map_err(|e| format!("declined jobs: {e}"))
}

/// Stores `job`, whose inputs are in `inputs`, as `root`/`name`. `declined` is the code of the reason if the job must
/// be declined.
fn keep(
    root: &Path,
    name: &str,
    job: &Job,
    inputs: &Path,
    declined: Option<&str>,
) -> Result<PathBuf, String> {
    let kept = record::keep(&LocalStorage, root, inputs, job, &CancelToken::new());
    let kept = kept.map_err(|e| format!("{name}: {e}"))?;
    let dir = root.join(name);
    fs::rename(kept, &dir).map_err(|e| format!("{name}: {e}"))?;
    if let Some(code) = declined {
        fs::write(dir.join(DECLINED_FILE), format!("{code:?}")).map_err(|e| e.to_string())?;
    }
    Ok(dir)
}

/// Returns an identity that depends only on a job's name.
fn identity(name: &str) -> Identity {
    /// FNV-1a.
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let hash = name.as_bytes().iter().fold(BASIS, mix);
    let session = SessionId {
        upper: hash >> 2,
        lower: hash.rotate_left(u32::BITS) | 1,
    };
    Identity {
        session_id: session.encode(),
        host: "host".to_owned(),
        checksum_seed: hash,
    }
}

/// Returns options of a new database that compacts only on request, so that no job depends on timing.
fn quiet_options() -> Options {
    /// Larger than any of the databases.
    const WRITE_BUFFER_BYTES: usize = 256 << 20;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options
}

/// Compacts all level-0 files of a column family to `level`.
fn compact_level_0(db: &DB, family: &str, level: i32) -> Result<(), String> {
    let files = db.live_files().map_err(|e| e.to_string())?;
    let top = files
        .iter()
        .filter(|f| f.level == 0 && f.column_family_name == family);
    let names: Vec<_> = top.map(|file| file.name.as_str()).collect();
    let family = db.cf_handle(family).ok_or("no such column family")?;
    let compacted = db.compact_files_cf(family, &CompactionOptions::default(), names, level);
    compacted.map(drop).map_err(|e| e.to_string())
}
