//! Opens the inputs of a job.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{
    Cacheable, DeclineReason, Error, FileIdentity, InputFile, InputTable, ReadAt, Result,
    open_table_in, range_tombstones,
};
use rockmill_exec::budget::JobShare;
use rockmill_exec::file_caches::database_number;
use rockmill_exec::parallel;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::names;
use rockmill_snapshot::tree::user_key;
use rockmill_storage::io::{ClosedInput, JobInput, JobIo};

use crate::eligibility::EligibleJob;
use crate::run_context::RunContext;

/// A closed input, with everything that was read while it was open.
type Input = (InputTable, Arc<ClosedInput>);

/// Reads the footers and indexes of all inputs. Also returns the CPU time of other threads.
pub fn inputs(
    context: &RunContext<'_>,
    files: &Arc<JobIo>,
    share: &JobShare,
    eligible: &EligibleJob,
    dir: &Path,
) -> Result<(Vec<Input>, Duration)> {
    let order = eligible.order()?;
    let job = &eligible.job;
    let caches = context.executor.registry().file_caches();
    let database = (!caches.is_empty()).then(|| database_number(dir));
    let open = |input: &InputFile| {
        context.cancel.check()?;
        let path = dir.join(&input.name);
        let reader = open_input(files, input, &path)?;
        let narrowed = files.narrow_outputs(&path);
        narrowed.map_err(|e| cannot_open(input, &e))?;
        let closed = Arc::new(reader.closed(path));
        let known = (context.known_tables).get(&job.info.db_session_id, input);
        let known = known.map(|known| known.of(&reader)).transpose()?;
        let table = match known.flatten() {
            // The order that was found may be another one while a column family had a single key.
            Some(table) if table.order() == order => table,
            _ => with_tombstones(open_table_in(Box::new(reader), order)?, share)?,
        };
        let table = table
            .read_through(Arc::clone(&closed) as _)
            .beginning_at(user_key(&input.smallest));
        check_identity(input, &table)?;
        let table = with_sequence(input, table)?;
        let table = match database {
            Some(database) => named(input, table, database),
            None => table,
        };
        share.hold(table.index_memory_bytes())?;
        Ok((table, closed))
    };
    let (inputs, threads) = (&job.tree.inputs, context.executor.budget().slots());
    parallel::map_in(&context.clock, inputs, threads, open)
}

/// Opens the file of an input and checks its size.
///
/// # Errors
/// Declined if the file is missing; Corruption if it has another size; Storage.
pub fn open_input(files: &Arc<JobIo>, input: &InputFile, path: &Path) -> Result<JobInput> {
    let reader = JobInput::open(files, path).map_err(|e| cannot_open(input, &e))?;
    if reader.len() != input.size {
        return Err(Error::corruption(
            &input.name,
            reader.len(),
            format!("the MANIFEST says that the file has {} bytes", input.size),
        ));
    }
    Ok(reader)
}

/// Returns the error of an input that cannot be opened. A missing file may be in another path.
fn cannot_open(input: &InputFile, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::declined(
            DeclineReason::InputMissing,
            "the file is not in the database's directory; files in other db_paths or cf_paths are not found",
        )
        .in_file(&input.name),
        _ => Error::storage(&input.name, "open it", error),
    }
}

/// Requires that the file is the one that the MANIFEST describes. Otherwise another valid file could be used in its
/// place.
fn check_identity(input: &InputFile, table: &InputTable) -> Result<()> {
    match FileIdentity::is_other(table, input.unique_id) {
        true => Err(Error::corruption(
            &input.name,
            table.meta.file_size,
            "the unique id differs from the one in the MANIFEST",
        )),
        false => Ok(()),
    }
}

/// Names the file to devices that cache files, if the MANIFEST has its unique id.
fn named(input: &InputFile, table: InputTable, database: u64) -> InputTable {
    let identity = input
        .unique_id
        .and_then(|id| FileIdentity::stated(&table, id));
    let cacheable = identity.map(|identity| Cacheable {
        identity,
        level: input.level,
        database,
    });
    table.with_cacheable(cacheable)
}

/// Memory of range tombstones, in copies: as they are, clipped to the file, and twice while they are cut into fragments.
const TOMBSTONE_COPIES: u64 = 4;

/// Reads the range tombstones of a table, as many as a job with a memory budget of `budget_bytes` can read.
///
/// # Errors
/// Those of [`range_tombstones`].
pub fn tombstones_in(table: &InputTable, budget_bytes: u64) -> Result<Vec<RangeTombstone>> {
    range_tombstones(table, budget_bytes / TOMBSTONE_COPIES)
}

/// Reads the table's range tombstones, if it has any. They count towards the job's `share`, before they are read and
/// afterwards.
fn with_tombstones(table: InputTable, share: &JobShare) -> Result<InputTable> {
    let Some(block) = table.meta.metaindex.get(names::RANGE_DELETIONS) else {
        return Ok(table);
    };
    let number = table.meta.properties.num_range_deletions;
    let stated = number.saturating_mul(size_of::<RangeTombstone>() as u64);
    let expected = stated
        .saturating_add(block.size)
        .saturating_mul(TOMBSTONE_COPIES);
    share.hold(expected)?;
    let tombstones = tombstones_in(&table, share.budget().all_bytes())?;
    let bytes = tombstones.iter().map(RangeTombstone::memory_bytes);
    let found = TOMBSTONE_COPIES * bytes.sum::<u64>();
    share.hold(found.saturating_sub(expected))?;
    Ok(table.with_range_tombstones(tombstones))
}

/// Gives the entries of an ingested file the sequence number that is in the MANIFEST alone.
fn with_sequence(input: &InputFile, table: InputTable) -> Result<InputTable> {
    match input.largest_seqno {
        Some(largest) => table.with_largest_sequence(largest),
        None if table.was_ingested() => {
            let what = "the record of the job lacks the sequence number of the ingested file";
            let error = Error::declined(DeclineReason::GlobalSequenceNumber, what);
            Err(error.in_file(&input.name))
        }
        None => Ok(table),
    }
}
