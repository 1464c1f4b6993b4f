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
//! | `GenSubcompactionBoundaries` reads the inputs' indexes without the mutex before the file is named | may be newer than the options |
//!
//! So before a job is reported, the engine reads all OPTIONS files that are there. Other options that may change beside
//! a job do not change what readers find.

use std::path::Path;
use std::time::Duration;

use rockmill_core::{CancelToken, Error, OutputFile, Result, open_table_in};
use rockmill_format::options_file::OptionsFile;
use rockmill_format::wire::CompactionServiceInput;

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
        if is_done || !may_be_compared(storage, database, &eligible.input) {
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
        let order = self.prepared.plan.output.order();
        let table = open_table_in(Box::new(self.verifier.open(number)?), order);
        let table = table.map_err(Error::as_verification)?;
        table::paranoid_hash(&table, cancel)
    }
}

/// Whether any OPTIONS file in `database` other than the named one requests the hash. True if this cannot be determined.
fn may_be_compared(storage: &dyn Storage, database: &Path, input: &CompactionServiceInput) -> bool {
    let Ok(names) = storage.list(database) else {
        return true;
    };
    names.iter().any(|name| match options_number(name) {
        Some(number) if number != input.options_file_number => {
            asks_for_hash(storage, database, number, &input.cf_name)
        }
        Some(_) => false,
        None => name
            .strip_suffix(TEMPORARY)
            .is_some_and(|name| options_number(name).is_some()),
    })
}

/// Whether an OPTIONS file requests the hash. True if it cannot be read.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use rockmill_storage::LocalStorage;

    #[test]
    fn a_job_is_hashed_if_earlier_or_later_options_ask_for_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |number: u64, asks: bool| {
            let text = format!(
                "[Version]\n  rocksdb_version=8.10.0\n  options_file_version=1.1\n\n[DBOptions]\n\n\
                 [CFOptions \"default\"]\n  paranoid_file_checks={asks}\n\n\
                 [TableOptions/BlockBasedTable \"default\"]\n"
            );
            let name = format!("OPTIONS-{number:06}");
            fs::write(dir.path().join(name), text).expect("written");
        };
        let input = CompactionServiceInput {
            cf_name: b"default".to_vec(),
            options_file_number: 9,
            ..CompactionServiceInput::default()
        };
        let is_hashed = || may_be_compared(&LocalStorage, dir.path(), &input);
        write(9, false);
        write(7, false);
        assert!(!is_hashed());
        write(7, true);
        assert!(is_hashed(), "it may have been picked before OPTIONS 9");
        write(7, false);
        write(11, true);
        assert!(is_hashed());
    }
}
