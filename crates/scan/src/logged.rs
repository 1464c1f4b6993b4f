//! What the write-ahead logs of a directory add to its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use rockmill_core::{CancelToken, Error, ErrorKind, Result};
use rockmill_format::manifest::Tree;
use rockmill_snapshot::unflushed::Logs;

use crate::engine::ScanEngine;
use crate::memory_table::MemoryTable;
use crate::opened::OpenFiles;
use crate::snapshot::Family;
use crate::version::Version;

/// Facts that the logs have.
#[derive(Default)]
pub(crate) struct Logged {
    /// The last sequence number, or 0.
    pub last_sequence: u64,
    /// Number of transactions that are prepared and not committed.
    pub prepared: usize,
    /// The reason why iterators cannot read them, if they cannot.
    pub unreadable: Option<Error>,
    /// Whether other records may stand in the logs now.
    pub may_change: bool,
}

/// Adds unflushed entries.
pub(crate) fn read_logs(
    engine: &Arc<ScanEngine>,
    version: Option<&Version>,
    tree: &Tree,
    logs: Result<Logs>,
    opened: &mut OpenFiles,
    cancel: &CancelToken,
) -> Result<Logged> {
    let has_unflushed = version.is_none_or(Version::has_unflushed);
    let families = &mut opened.families;
    let is_wanted = |id: u32| {
        let family = families.get(&id).filter(|_| has_unflushed);
        family.is_some_and(|family| family.unread.is_none() && !family.is_closed)
    };
    let most = engine.max_unflushed_bytes();
    let unreadable = |error| Logged {
        unreadable: Some(error),
        may_change: true,
        ..Logged::default()
    };
    let unflushed = logs.and_then(|logs| logs.read(tree, is_wanted, most, cancel));
    let mut unflushed = match unflushed {
        Ok(unflushed) => unflushed,
        // The version needs nothing from the logs.
        Err(error) if !has_unflushed => return Ok(unreadable(error)),
        Err(error) if is_declined(&error) && version.is_none() => {
            only_through_iterators(families, &error);
            return Ok(unreadable(error));
        }
        Err(error) => return Err(error),
    };
    let prepared = unflushed.prepared_transactions();
    let ends = unflushed.least_last_sequence()..=unflushed.last_sequence;
    for family in families.values_mut() {
        let logged = version.map_or(unflushed.last_sequence, |version| version.logged);
        family.logged = Some(logged);
    }
    if let Some(version) = version {
        let memtables = unflushed.families.values_mut();
        memtables.for_each(|memtable| memtable.keep_until(version.logged));
    }
    let tables = unflushed.families.iter().map(|(id, memtable)| {
        let table = MemoryTable::new(memtable, engine, cancel)?;
        Ok((*id, Arc::new(table)))
    });
    let tables = match unflushed.left_out {
        Some(error) => Err(error),
        None => tables.collect::<Result<Vec<_>>>(),
    };
    match tables {
        Ok(tables) => {
            for (id, table) in tables {
                if let Some(family) = families.get_mut(&id) {
                    family.unflushed.push(table);
                }
            }
        }
        // Iterators read all rows of a snapshot that is taken here. The version of another process is an error.
        Err(error) if is_declined(&error) && version.is_none() => {
            only_through_iterators(families, &error);
        }
        Err(error) => return Err(error),
    }
    if let Some(checkpoint) = &mut opened.checkpoint {
        checkpoint.add_logs(unflushed.logs, ends);
    }
    Ok(Logged {
        last_sequence: unflushed.last_sequence,
        prepared,
        unreadable: None,
        may_change: unflushed.may_change,
    })
}

fn is_declined(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Declined(_))
}

/// Leaves all rows to RocksDB's iterators.
fn only_through_iterators(families: &mut BTreeMap<u32, Family>, reason: &Error) {
    for family in families.values_mut() {
        family.unread.get_or_insert_with(|| reason.to_string());
    }
}
