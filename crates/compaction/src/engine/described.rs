//! Declines jobs whose inputs have properties of contents that Rockmill does not compact, when RocksDB schedules the
//! job.
//!
//! If RocksDB has to wait for a job before it is declined, it lists its whole tree at ERROR in its LOG
//! (`compaction_service_job.cc:ProcessKeyValueCompactionWithCompactionService`). It calls `Schedule` without its mutex,
//! on the thread that waits for the job afterwards, so reading there delays nothing else.
//!
//! Range tombstones, merge operands, global sequence numbers and times of sequence numbers are in a file's properties. An
//! input costs three small reads here. It is closed again, since descriptors are counted only for subcompactions.

use std::collections::BTreeMap;
use std::path::Path;

use rockmill_core::{CancelToken, Error, InputFile, Result, describe_table};
use rockmill_exec::parallel;
use rockmill_snapshot::Findings;

use super::Engine;
use super::databases::Database;
use crate::eligibility::{self, EligibleJob};
use crate::prepare::open_input;

/// Maximum number of a database's files whose findings are kept. A file has an entry of some 100 bytes.
const MAX_FILES: usize = 4096;

/// Findings about files of a database, by name. RocksDB never changes a file. It offers the same file again in other
/// subcompactions, and after a job that was declined or cancelled.
#[derive(Debug, Default)]
pub(super) struct DescribedFiles(BTreeMap<String, Vec<Error>>);

impl Engine {
    /// Reads the properties of the inputs, unless their findings are known.
    ///
    /// # Errors
    /// Declined if an input has contents that Rockmill does not compact; Corruption or Storage if it cannot be read;
    /// Cancelled.
    pub(super) fn check_described(
        &self,
        database: &Database,
        dir: &Path,
        eligible: &EligibleJob,
        cancel: &CancelToken,
    ) -> Result<()> {
        let inputs = &eligible.job.tree.inputs;
        let unknown: Vec<_> = {
            let described = database.described.lock();
            let is_known = |input: &&InputFile| described.0.contains_key(&input.name);
            inputs.iter().filter(|input| !is_known(input)).collect()
        };
        let files = self.context(self.settings(), cancel).files(eligible)?;
        let merges = eligible.merges();
        let describe = |input: &&InputFile| {
            cancel.check()?;
            let mut found = Findings::default();
            let (session, comparator) = (&eligible.job.info.db_session_id, eligible.comparator());
            if let Some(known) = self.known_tables.get(session, input) {
                let meta = &known.table().meta;
                eligibility::check_input(&input.name, meta, comparator, &merges, &mut found);
                return Ok(found.into_vec());
            }
            let reader = open_input(&files, input, &dir.join(&input.name))?;
            let meta = describe_table(&reader)?;
            eligibility::check_input(&input.name, &meta, comparator, &merges, &mut found);
            Ok(found.into_vec())
        };
        let (threads, clock) = (self.executor.budget().slots(), self.storage.clock());
        let (read, _) = parallel::map_in(&clock, &unknown, threads, describe)?;
        let mut described = database.described.lock();
        let names = unknown.iter().map(|input| input.name.clone());
        described.0.extend(names.zip(read));
        let found = inputs
            .iter()
            .filter_map(|input| described.0.get(&input.name));
        let first = found.flatten().next().cloned();
        while described.0.len() > MAX_FILES {
            // The oldest file is the first.
            described.0.pop_first();
        }
        first.map_or(Ok(()), Err)
    }
}
