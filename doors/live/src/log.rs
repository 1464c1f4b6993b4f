//! Unflushed entries of a database that is open, from its log.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rockmill_core::{CancelToken, ErrorKind, Result};
use rockmill_scan::ScanEngine;
use rockmill_scan::source::MemoryTable;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_snapshot::unflushed::Unflushed;

use crate::{Handle, NOT_IN_LOG, failed};

/// Maximum tables of a column family. More are replaced by one.
const MAX_TABLES: usize = 8;

/// The unflushed entries of all column families up to the last snapshot. The next snapshot adds to them.
#[derive(Debug, Default)]
pub struct LogEntries(BTreeMap<u32, FamilyEntries>);

/// The unflushed entries of a column family.
#[derive(Debug, Default)]
struct FamilyEntries {
    log_number: u64,
    tables: Vec<Arc<MemoryTable>>,
    /// The entries are those with sequence numbers up to this one.
    until: u64,
    /// Number of the entries.
    entries: u64,
    /// Whether these are all: no write has bypassed the log.
    is_complete: bool,
    /// Whether entries behind `until` may be flushed, which the next snapshot would count with the others.
    ends_here: bool,
}

/// A column family whose entries are read.
#[derive(Debug)]
pub struct SelectedFamily {
    /// Its unflushed entries are in logs from this number on.
    pub log_number: u64,
    /// Its name.
    pub name: String,
}

/// Entries of all memtables by column family, and the sequence number of the last write before they were counted.
#[derive(Debug, Default)]
pub struct Counted {
    /// The sequence number.
    pub at: u64,
    /// The entries.
    pub entries: BTreeMap<String, u64>,
}

/// Request for a read of the log.
#[derive(Debug)]
pub struct Read {
    /// The column families by their ids.
    pub families: BTreeMap<u32, SelectedFamily>,
    /// Several counts, since writes may come between them.
    pub counted: Vec<Counted>,
    /// Sequence number of the snapshot.
    pub sequence: u64,
}

/// Number of new entries of a column family, and of those that each count should include.
#[derive(Debug)]
struct Found {
    all: Cell<u64>,
    of_counts: Vec<Cell<u64>>,
}

/// Result of reading the log.
struct Run {
    unflushed: Unflushed,
    /// Each sequence number from this one up to the snapshot's is in the log.
    since: u64,
    /// The reason if it was not read to the end.
    trouble: Option<String>,
}

impl LogEntries {
    /// The tables of a column family.
    pub fn tables(&self, id: u32) -> Vec<Arc<MemoryTable>> {
        self.0
            .get(&id)
            .map_or_else(Vec::new, |family| family.tables.clone())
    }

    /// Adds the entries up to the snapshot's sequence number. Returns the column families whose entries may be incomplete, and
    /// why.
    ///
    /// They are complete if the log has every sequence number since they were complete, or if the memtables have no
    /// more entries. A log that RocksDB deletes while it is read leaves a gap in the sequence numbers.
    ///
    /// # Errors
    /// Storage; Cancelled; Corruption if the log is damaged; Declined if the MANIFEST cannot be read.
    pub fn go_on(
        &mut self,
        db: &dyn Handle,
        follower: &mut TreeFollower,
        read: &Read,
        engine: &ScanEngine,
        cancel: &CancelToken,
    ) -> Result<BTreeMap<u32, String>> {
        self.0.retain(|id, _| read.families.contains_key(id));
        self.begin(db, follower, read, engine, cancel)?;
        let of_all = self.0.values().map(|family| family.until);
        let from = of_all.min().unwrap_or(read.sequence);
        let nothing = || Found {
            all: Cell::default(),
            of_counts: read.counted.iter().map(|_| Cell::default()).collect(),
        };
        let found: BTreeMap<u32, Found> = self.0.keys().map(|&id| (id, nothing())).collect();
        let takes = |id: u32, sequence: u64| {
            let is_new = self
                .0
                .get(&id)
                .is_some_and(|family| family.until < sequence);
            let takes = is_new && sequence <= read.sequence;
            if let Some(found) = found.get(&id).filter(|_| takes) {
                found.all.update(|all| all + 1);
                for (of_count, counted) in found.of_counts.iter().zip(&read.counted) {
                    of_count.update(|count| count + u64::from(sequence <= counted.at));
                }
            }
            takes
        };
        let most = engine.max_unflushed_bytes();
        let mut run = run(db, from, read.sequence, most, &takes, cancel)?;
        let mut incomplete = BTreeMap::new();
        for (id, family) in &mut self.0 {
            let added = match run.unflushed.families.get_mut(id) {
                Some(memtable) => {
                    memtable.sort();
                    MemoryTable::new(memtable, engine, cancel).map(|table| Some(Arc::new(table)))
                }
                None => Ok(None),
            };
            let mut trouble = None;
            match added {
                Ok(added) => family.tables.extend(added),
                Err(error) if matches!(error.kind, ErrorKind::Declined(_)) => {
                    trouble = Some(error.to_string());
                }
                Err(error) => return Err(error),
            }
            let (selected, found) = (&read.families[id], &found[id]);
            let were_all = family.is_complete && run.since <= family.until + 1;
            let mut counts = read.counted.iter().zip(&found.of_counts);
            let has_all = counts.any(|(counted, of_count)| {
                let entries = family.entries + of_count.get();
                counted.entries.get(&selected.name) == Some(&entries) && run.since <= counted.at + 1
            });
            family.is_complete = trouble.is_none() && (were_all || has_all);
            family.entries += found.all.get();
            family.until = family.until.max(read.sequence);
            if !family.is_complete {
                let reason = trouble.or_else(|| run.trouble.clone());
                incomplete.insert(*id, reason.unwrap_or_else(|| NOT_IN_LOG.to_owned()));
            }
        }
        for id in incomplete.keys() {
            self.0.remove(id);
        }
        Ok(incomplete)
    }

    /// Starts again with column families whose log number has changed, or that have too many tables.
    ///
    /// The first listed log from a family's log number on need not be the family's first log. A flush may have ended
    /// after the family's files were read, and RocksDB deletes a log as soon as the MANIFEST does not need it any more
    /// (`db_impl_files.cc:FindObsoleteFiles`). So the MANIFEST is read again when the logs are listed. While it names
    /// the same log number, memtables hold the family's entries of all these logs, and none of the logs was deleted.
    /// Otherwise entries may be missing, and only a count can show that none is.
    fn begin(
        &mut self,
        db: &dyn Handle,
        follower: &mut TreeFollower,
        read: &Read,
        engine: &ScanEngine,
        cancel: &CancelToken,
    ) -> Result<()> {
        let mut logs = None;
        let latest = db.latest_sequence();
        for (&id, selected) in &read.families {
            let known = self.0.get(&id);
            let goes_on = known.is_some_and(|family| {
                family.log_number == selected.log_number
                    && family.tables.len() < MAX_TABLES
                    && !family.ends_here
            });
            if goes_on {
                continue;
            }
            let logs = match &mut logs {
                Some(logs) => logs,
                none => {
                    let logs = none.insert(logs_of(db)?);
                    follower.refresh(engine.storage(), db.path(), (0, 0), cancel)?;
                    logs
                }
            };
            // Entries in front of the first log are flushed. Without such a log, nothing was logged.
            let first = logs.range(selected.log_number..).next();
            let flushed = first.map_or(latest, |(_, first)| first.saturating_sub(1));
            let until = flushed.min(read.sequence);
            let now = follower.tree().column_families.get(&id);
            let has_all_logs = now.is_some_and(|now| now.log_number == selected.log_number);
            let were_all = known.is_some_and(|family| family.is_complete && family.until >= until);
            let family = FamilyEntries {
                log_number: selected.log_number,
                until,
                is_complete: has_all_logs && were_all,
                ends_here: flushed > read.sequence,
                ..FamilyEntries::default()
            };
            self.0.insert(id, family);
        }
        Ok(())
    }
}

/// Number and first sequence number of each log.
///
/// RocksDB fails if it recycles a log while it lists them: the file has another name then.
///
/// # Errors
/// Storage if it fails each time.
fn logs_of(db: &dyn Handle) -> Result<BTreeMap<u64, u64>> {
    const ATTEMPTS: usize = 5;
    let mut logs = db.logs();
    for _ in 1..ATTEMPTS {
        if logs.is_ok() {
            break;
        }
        logs = db.logs();
    }
    logs
}

/// Reads the writes after `from` up to `sequence`.
fn run(
    db: &dyn Handle,
    from: u64,
    sequence: u64,
    max_bytes: usize,
    takes: &impl Fn(u32, u64) -> bool,
    cancel: &CancelToken,
) -> Result<Run> {
    let mut run = Run {
        unflushed: Unflushed::new(max_bytes),
        since: from + 1,
        trouble: None,
    };
    let mut next = from + 1;
    let mut after = from;
    while next <= sequence {
        cancel.check()?;
        let found = read_after(db, after, sequence, takes, cancel, &mut run, &mut next);
        run.trouble = None;
        let Err(error) = found else {
            break;
        };
        run.trouble = Some(format!("{NOT_IN_LOG}: {error}"));
        // Reading continues behind a gap: files may have been ingested there.
        let goes_on = error.kind == ErrorKind::Storage && next > after;
        if !goes_on {
            break;
        }
        after = next;
    }
    if next <= sequence {
        run.since = sequence + 1;
    }
    Ok(run)
}

/// Reads the writes after a sequence number up to `sequence`. `next` is the first one that was not read.
fn read_after(
    db: &dyn Handle,
    after: u64,
    sequence: u64,
    takes: &impl Fn(u32, u64) -> bool,
    cancel: &CancelToken,
    run: &mut Run,
    next: &mut u64,
) -> Result<()> {
    let mut batches = db.logged_after(after)?;
    while *next <= sequence
        && let Some(batch) = batches.next()
    {
        cancel.check()?;
        let (first, batch) = batch.map_err(|e| failed("read its log", &e))?;
        if first > sequence {
            break;
        }
        if first != *next {
            run.since = first;
        }
        run.unflushed.add_batch(batch.data(), takes)?;
        *next = run.unflushed.last_sequence + 1;
    }
    batches.status().map_err(|e| failed("read its log", &e))
}
