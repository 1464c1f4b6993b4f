//! The hash over all entries of finished files, for jobs whose OPTIONS file did not ask for it.
//!
//! RocksDB compares this hash if `paranoid_file_checks` or `verify_output_flags` was set when RocksDB picked the
//! compaction. It stops all writes if the hash differs. The job may name another OPTIONS file than the one in force at
//! that time:
//!
//! | RocksDB | the OPTIONS file that the job names |
//! |---|---|
//! | `SetOptions` starts compactions before it writes OPTIONS (`db_impl.cc:SetOptions`) | is older than the options |
//! | a manual compaction, or one of the bottom-priority pool, waits for a thread | may be newer than the options |
//!
//! So before a job is reported, the engine reads all OPTIONS files that may have been in force.

use std::path::Path;
use std::time::Duration;

use rockmill_core::{CancelToken, Error, OutputFile, Result, open_table};
use rockmill_format::options_file::OptionsFile;

use super::RunningJob;
use crate::eligibility::{EligibleJob, wants_paranoid_hash};
use crate::run_context::RunContext;
use crate::verify::table;
use rockmill_exec::parallel;
use rockmill_snapshot::closed_database::{options_number, read_options};
use rockmill_storage::Storage;
use rockmill_storage::io::Stage;

/// Suffix of an OPTIONS file that is being written (`filename.cc:TempOptionsFileName`).
const TEMPORARY: &str = ".dbtmp";

impl RunningJob {
    /// Adds the hashes to `files` if RocksDB may compare them. Returns the CPU time of threads other than the caller's.
    pub(super) fn hash_if_asked(
        &self,
        context: &RunContext<'_>,
        eligible: &EligibleJob,
        database: &Path,
        files: &mut [OutputFile],
    ) -> Result<Duration> {
        let storage = &**context.storage;
        let is_done = self.prepared.plan.output.paranoid_hash;
        if is_done || !may_be_compared(storage, database, eligible) {
            return Ok(Duration::ZERO);
        }
        let threads = context.executor.budget().slots();
        let hash = |file: &OutputFile| {
            let meter = &self.files().meter;
            meter.time(Stage::Verify, file.size, || {
                self.hash(file.number, context.cancel)
            })
        };
        let (hashes, elsewhere) = parallel::map_in(&context.clock, files, threads, hash)?;
        for (file, hash) in files.iter_mut().zip(hashes) {
            file.paranoid_hash = hash;
        }
        Ok(elsewhere)
    }

    fn hash(&self, number: u64, cancel: &CancelToken) -> Result<u64> {
        let table = open_table(Box::new(self.verifier.open(number)?));
        let table = table.map_err(Error::as_verification)?;
        table::paranoid_hash(&table, cancel)
    }
}

/// Whether any OPTIONS file in `database` that may have been in force when RocksDB picked the job asks for the hash.
/// True if this cannot be determined.
fn may_be_compared(storage: &dyn Storage, database: &Path, eligible: &EligibleJob) -> bool {
    let EligibleJob { job, input, .. } = eligible;
    let named = input.options_file_number;
    let may_have_waited = job.info.is_manual_compaction || job.info.is_in_bottom_pool;
    let Ok(names) = storage.list(database) else {
        return true;
    };
    names.iter().any(|name| match options_number(name) {
        Some(number) if number > named || (number < named && may_have_waited) => {
            asks_for_hash(storage, database, number, &input.cf_name)
        }
        Some(_) => false,
        None => name
            .strip_suffix(TEMPORARY)
            .is_some_and(|name| options_number(name).is_some()),
    })
}

/// Whether an OPTIONS file asks for the hash. True if it cannot be read.
fn asks_for_hash(storage: &dyn Storage, database: &Path, number: u64, cf_name: &[u8]) -> bool {
    let Ok(text) = read_options(storage, database, number) else {
        return true;
    };
    let Ok(options) = OptionsFile::parse_for(&text, cf_name) else {
        return true;
    };
    options
        .cf(cf_name)
        .is_some_and(|family| wants_paranoid_hash(&family.options).unwrap_or(true))
}
