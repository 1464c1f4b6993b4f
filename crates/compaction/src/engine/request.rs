//! Creates jobs from requests.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore;
use rockmill_core::{
    CancelToken, DeclineReason, Error, Hints, Identity, JOB_VERSION, Job, JobInfo, Result,
    TreeState,
};
use rockmill_format::manifest::Tree;
use rockmill_format::unique_id::SessionId;
use rockmill_format::versions;
use rockmill_format::wire::CompactionServiceInput;

use super::Engine;
use super::databases::Database;
use crate::eligibility::{self, EligibleJob};
use rockmill_snapshot::closed_database::{
    ClosedDatabase, LatestOptions, options_name, read_options,
};
use rockmill_snapshot::tree::{total_bytes, unique_ids};

/// The upper half of a session id has 62 bits.
const SESSION_UPPER_SPARE_BITS: u32 = 2;

impl Engine {
    /// Creates a job from RocksDB's request: reads the OPTIONS file and the MANIFEST, draws an identity, and checks
    /// whether options, tree and the properties of the inputs allow the job.
    ///
    /// `dir` is the database's directory, `message` the `CompactionServiceInput`.
    ///
    /// # Errors
    /// Declined, Cancelled; Corruption or Storage if an input cannot be read.
    pub fn prepare(
        &self,
        dir: &Path,
        mut info: JobInfo,
        message: &[u8],
        cancel: &CancelToken,
    ) -> Result<EligibleJob> {
        let mut input = CompactionServiceInput::decode(message)
            .map_err(|e| Error::declined(DeclineReason::InputMessage, e.to_string()))?;
        let database = self.database(dir, &info.db_session_id, cancel)?;
        let floor = (input.min_manifest_file_number, input.min_manifest_file_size);
        let (options, tree) = {
            let mut follower = database.tree.lock();
            follower.refresh(&*self.storage, dir, floor, cancel)?;
            (self.executor.registry()).database_has(dir, unique_ids(follower.tree()));
            match self.executor.registry().file_caches().is_empty() {
                true => self.known_tables.clear(),
                false => (self.known_tables).look(&info.db_session_id, unique_ids(follower.tree())),
            }
            self.begin_session(&database, dir, &input.db_id, follower.tree())?;
            let options = self.options(dir, &mut input)?;
            complete(&mut info, &input, follower.tree());
            let mut tree = follower.tree_state(&input, info.cf_id)?;
            if eligibility::attached_comparator(&info, &self.settings.hints).is_some() {
                require_unknown_order(&database, info.cf_id)?;
                tree.deeper_bounds = follower.deeper_bounds(&input, info.cf_id);
            }
            if info.reason == JobInfo::UNKNOWN_REASON {
                (info.is_full_compaction, info.is_bottommost_level) =
                    follower.extent(&input, info.cf_id);
            }
            (options, tree)
        };
        if info.base_input_level == JobInfo::UNKNOWN_LEVEL {
            let lowest = tree.inputs.iter().map(|file| file.level).min();
            info.base_input_level = lowest.map_or(0, |level| level as i32);
        }
        self.require_bytes(&tree)?;
        let key = (info.cf_id, input.options_file_number);
        let learned = database.filter_millibits.lock().get(&key).copied();
        let job = self.draft(info, &input, message.to_vec(), options, tree, learned);
        let eligible = self.checked(EligibleJob::of(job, input)?)?;
        require_version(&eligible)?;
        require_renames(dir, &eligible)?;
        require_own_path(dir, &eligible.job.info)?;
        let info = &eligible.job.info;
        let filter = info.plugins.as_ref().and_then(|plugins| plugins.filter());
        database.failed_filters.lock().check(info.cf_id, filter)?;
        self.check_described(&database, dir, &eligible, cancel)?;
        Ok(eligible)
    }

    /// Returns the text of a job's OPTIONS file, and stores its number in `input`.
    ///
    /// RocksDB before 9.7.3 sends options instead, all except those of the table. The newest file must then have the
    /// same.
    fn options(&self, dir: &Path, input: &mut CompactionServiceInput) -> Result<String> {
        let none = |what: &str| Error::declined(DeclineReason::OptionsFile, what.to_owned());
        let Some(given) = &input.options else {
            return match input.options_file_number {
                0 => Err(none("the job names no OPTIONS file")),
                number => read_options(&*self.storage, dir, number),
            };
        };
        let latest = LatestOptions::read(&*self.storage, dir)?;
        let latest = latest.ok_or_else(|| none("there is none"))?;
        let name = options_name(latest.number);
        if latest.cut.is_some() {
            return Err(none("a newer one is truncated").in_file(&name));
        }
        let family = latest.options.cf(&input.cf_name);
        let family = family.ok_or_else(|| none("it lacks the column family").in_file(&name))?;
        let differing = given.differing(&latest.options.db, &family.options);
        let malformed =
            |e: rockmill_format::Error| Error::declined(DeclineReason::InputMessage, e.to_string());
        if let Some(option) = differing.map_err(malformed)? {
            let what = format!("{option} differs from RocksDB's current value");
            return Err(none(&what).in_file(&name));
        }
        input.options_file_number = latest.number;
        Ok(latest.text)
    }

    /// Checks whether a job's options allow it.
    ///
    /// # Errors
    /// Declined.
    pub fn eligible(&self, job: Job) -> Result<EligibleJob> {
        self.checked(EligibleJob::read(job)?)
    }

    fn checked(&self, mut eligible: EligibleJob) -> Result<EligibleJob> {
        if eligible.job.info.plugins.is_none() {
            eligible.job.info.plugins = self.settings.objects.plugins(&eligible)?;
        }
        eligibility::from_options(eligible, self.policy())
    }

    fn require_bytes(&self, tree: &TreeState) -> Result<()> {
        let least = self.settings().min_job_bytes;
        let bytes = input_bytes(tree);
        if bytes >= least {
            return Ok(());
        }
        let what = format!("{bytes} bytes of input are fewer than min_job_bytes, {least}");
        Err(Error::declined(DeclineReason::SmallJob, what))
    }

    /// Creates a job that has not been checked. `message` is `input` as RocksDB sent it.
    pub(super) fn draft(
        &self,
        info: JobInfo,
        input: &CompactionServiceInput,
        message: Vec<u8>,
        options: String,
        tree: TreeState,
        learned: Option<u32>,
    ) -> Job {
        let family = String::from_utf8_lossy(&input.cf_name);
        let stated = &self.settings.merge_operators;
        Job {
            version: JOB_VERSION,
            info,
            options,
            tree,
            hints: Hints {
                filter_millibits_per_key: self.settings.hints.filter_millibits_per_key.or(learned),
                merge_operator: stated.get(&family).cloned(),
                merge_operator_of_family: stated.names(&family),
                comparators: self.settings.hints.comparators.clone(),
            },
            identity: self.identity(),
            unix_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            compressed_by: None,
            input: message,
        }
    }

    /// Creates the job that compacts everything in a column family of a closed database to its last level.
    ///
    /// # Errors
    /// Declined, or Storage if there is no database in `dir`.
    pub fn full_compaction(&self, dir: &Path, cf_name: &[u8]) -> Result<EligibleJob> {
        let database = ClosedDatabase::read(&*self.storage, dir)?;
        let (info, input) = database.full_request(dir, cf_name)?;
        if input.input_files.is_empty() {
            let what = "the column family has no files";
            return Err(Error::declined(DeclineReason::Manifest, what));
        }
        let tree = database.follower.tree_state(&input, info.cf_id)?;
        let message = input.encode();
        let job = self.draft(info, &input, message, database.options_text, tree, None);
        self.checked(EligibleJob::of(job, input)?)
    }

    /// Draws an identity that no other attempt has.
    fn identity(&self) -> Identity {
        let mut random = rand::rng();
        let session = SessionId {
            upper: random.next_u64() >> SESSION_UPPER_SPARE_BITS,
            lower: random.next_u64() | 1,
        };
        Identity {
            session_id: session.encode(),
            host: self.host.clone(),
            checksum_seed: random.next_u64(),
        }
    }
}

/// Requires that the comparator has not contradicted the order of bytes in an earlier job: no later one can be done.
fn require_unknown_order(database: &Database, cf_id: u32) -> Result<()> {
    match database.other_orders.lock().contains(&cf_id) {
        true => {
            let what =
                "the comparator has ordered keys of an earlier job otherwise than their bytes";
            Err(Error::declined(DeclineReason::Comparator, what))
        }
        false => Ok(()),
    }
}

/// Requires that Rockmill knows the messages of the database's RocksDB, and that this version has written the OPTIONS
/// file. RocksDB may continue if it could not write one. A result with a field too many or too few can stop the
/// database.
fn require_version(eligible: &EligibleJob) -> Result<()> {
    if let Some(what) = versions::unsupported(eligible.options().rocksdb_version) {
        return Err(Error::declined(DeclineReason::RocksdbVersion, what));
    }
    let (asks, wrote) = (
        eligible.job.info.rocksdb_version,
        eligible.options().rocksdb_version,
    );
    let Some(asks) = asks.filter(|&asks| asks != wrote) else {
        return Ok(());
    };
    let [asks, wrote] =
        [asks, wrote].map(|[major, minor, patch]| format!("{major}.{minor}.{patch}"));
    let what = format!("RocksDB {asks} offers the job, and {wrote} has written the file");
    Err(Error::declined(DeclineReason::OptionsFile, what))
}

/// Requires that renamed files survive a crash without Rockmill's help. RocksDB's own sync of its folder does nothing
/// on btrfs ([`Engine::files_taken`]), and before 9.6 it does not report when it has renamed them.
fn require_renames(dir: &Path, eligible: &EligibleJob) -> Result<()> {
    const BTRFS: i64 = 0x9123_683e;
    if versions::tells_installation(eligible.options().rocksdb_version) {
        return Ok(());
    }
    // In tests, the database is not on a file system of this machine.
    match rustix::fs::statfs(dir) {
        Ok(found) if found.f_type == BTRFS => Err(Error::declined(
            DeclineReason::StagingFolder,
            "the database is on btrfs, which needs RocksDB 9.6 or newer",
        )),
        _ => Ok(()),
    }
}

/// Requires that the options place the files of the job where RocksDB and Rockmill both look for them.
fn require_own_path(dir: &Path, info: &JobInfo) -> Result<()> {
    let path = info
        .plugins
        .as_ref()
        .and_then(|plugins| plugins.path.as_deref());
    let is_own = |path: &Path| {
        let same = path.canonicalize().ok().zip(dir.canonicalize().ok());
        path == dir || same.is_some_and(|(path, dir)| path == dir)
    };
    match path {
        Some(path) if !is_own(path) => Err(Error::declined(
            DeclineReason::DbPaths,
            format!("db_paths or cf_paths place files in {}", path.display()),
        )),
        _ => Ok(()),
    }
}

/// Returns the size of all input files.
fn input_bytes(tree: &TreeState) -> u64 {
    total_bytes(tree.inputs.iter().map(|input| input.size))
}

/// Fills in members that older versions of `CompactionServiceJobInfo` lack.
fn complete(info: &mut JobInfo, input: &CompactionServiceInput, tree: &Tree) {
    if info.cf_id == JobInfo::UNKNOWN_CF_ID {
        let mut families = tree.column_families.iter();
        let family = families.find(|(_, family)| family.name == input.cf_name);
        info.cf_id = family.map_or(JobInfo::UNKNOWN_CF_ID, |(&id, _)| id);
    }
    if info.output_level == JobInfo::UNKNOWN_LEVEL {
        info.output_level = input.output_level;
    }
}
