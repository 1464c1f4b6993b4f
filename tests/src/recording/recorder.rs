//! A compaction service that records the offered jobs and leaves them to RocksDB.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rockmill_core::{CancelToken, Hints, JOB_VERSION, Job, JobInfo, Lock};
use rockmill_format::wire::CompactionServiceInput;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::LocalStorage;
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, EnvPriority,
    ScheduleResponse,
};

/// How the next jobs are recorded.
#[derive(Clone, Debug)]
pub struct Take {
    /// Name of the first job; others have a number appended.
    pub name: String,
    /// Minimum number of jobs that must be offered.
    pub least: usize,
    /// Maximum number of recorded jobs.
    pub most: usize,
    /// Hints for the jobs in addition to the OPTIONS file.
    pub hints: Hints,
    /// Code of the reason if the jobs must be declined.
    pub declined: Option<&'static str>,
}

impl Take {
    /// Records one job with this name that is not declined.
    pub fn one(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            least: 1,
            most: 1,
            hints: Hints::default(),
            declined: None,
        }
    }

    /// Records one job with this name that must be declined.
    pub fn declined(name: &str, code: &'static str) -> Self {
        Self {
            declined: Some(code),
            ..Self::one(name)
        }
    }
}

#[derive(Debug, Default)]
struct State {
    take: Option<Take>,
    taken: usize,
    error: Option<String>,
}

/// Records jobs during [`Recorder::during`]. Clones share their state.
#[derive(Clone, Debug)]
pub struct Recorder {
    root: PathBuf,
    state: Arc<Lock<State>>,
}

impl Recorder {
    /// Creates a recorder for jobs in `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            state: Arc::default(),
        }
    }

    /// Folder of the recorded jobs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Records the jobs that RocksDB offers during `compact`.
    ///
    /// # Errors
    ///
    /// An error of `compact`, or an error if there was no job.
    pub fn during(
        &self,
        take: Take,
        compact: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let (name, least) = (take.name.clone(), take.least);
        *self.state.lock() = State {
            take: Some(take),
            ..State::default()
        };
        let compacted = compact();
        let state = std::mem::take(&mut *self.state.lock());
        compacted?;
        match state.error {
            Some(error) => Err(format!("{name}: {error}")),
            None if state.taken < least => Err(format!("{name}: RocksDB offered no job")),
            None => Ok(()),
        }
    }

    fn keep(&self, info: &CompactionServiceJobInfo<'_>, message: &[u8]) -> Result<(), String> {
        let (take, number) = {
            let mut state = self.state.lock();
            let Some(take) = state.take.clone().filter(|take| state.taken < take.most) else {
                return Ok(());
            };
            state.taken += 1;
            (take, state.taken)
        };
        let name = match number {
            1 => take.name,
            _ => format!("{}-{number}", take.name),
        };
        let dir = Path::new(OsStr::from_bytes(info.db_name()));
        let job = job(&name, dir, info, message, take.hints)?;
        super::keep(&self.root, &name, &job, dir, take.declined).map(drop)
    }
}

/// Makes the offered job as the engine does, but without checking whether it is eligible.
fn job(
    name: &str,
    dir: &Path,
    info: &CompactionServiceJobInfo<'_>,
    message: &[u8],
    hints: Hints,
) -> Result<Job, String> {
    let input = CompactionServiceInput::decode(message).map_err(|e| e.to_string())?;
    let options = dir.join(format!("OPTIONS-{:06}", input.options_file_number));
    let options = std::fs::read_to_string(options).map_err(|e| format!("OPTIONS file: {e}"))?;
    let floor = (input.min_manifest_file_number, input.min_manifest_file_size);
    let mut follower = TreeFollower::default();
    follower
        .refresh(&LocalStorage, dir, floor, &CancelToken::new())
        .map_err(|e| e.to_string())?;
    let tree = follower
        .tree_state(&input, info.cf_id())
        .map_err(|e| e.to_string())?;
    Ok(Job {
        version: JOB_VERSION,
        input: message.to_vec(),
        info: JobInfo {
            db_name: "db".to_owned(),
            db_session_id: String::from_utf8_lossy(info.db_session_id()).into_owned(),
            cf_id: info.cf_id(),
            job_id: info.job_id(),
            reason: info.compaction_reason().ok_or("an unknown reason")? as i32,
            is_full_compaction: info.is_full_compaction(),
            is_manual_compaction: info.is_manual_compaction(),
            is_bottommost_level: info.is_bottommost_level(),
            base_input_level: info.base_input_level(),
            output_level: info.output_level(),
            is_in_bottom_pool: info.priority() == Some(EnvPriority::Bottom),
            rocksdb_version: None,
            plugins: None,
            picked_compression: None,
        },
        options,
        tree,
        hints,
        identity: super::identity(name),
        unix_time: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        compressed_by: None,
    })
}

impl CompactionService for Recorder {
    fn name(&self) -> &CStr {
        c"Recorder"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        if let Err(error) = self.keep(info, input) {
            self.state.lock().error = Some(error);
        }
        ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal)
    }

    fn wait(&self, _scheduled_job_id: &CStr, _result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        CompactionServiceJobStatus::UseLocal
    }
}
