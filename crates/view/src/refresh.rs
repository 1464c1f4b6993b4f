//! Refreshes a view to the current state of the database.

use std::sync::Arc;

use rockmill_core::{KeyRange, Result, RowOutput, Tombstones};
use rockmill_cuda::{Delta, DeviceTable};
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_scan::{FamilySnapshot, Since, WrittenSince};

use crate::estimate::RocksDbRange;
use crate::load::{
    MAX_REHASHES, Snapshot, Source, insert, more_slots, no_room, outside, reserve, seed,
};
use crate::version::Version;
use crate::view::View;

/// Result of a refresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// The sequence number of the view's snapshot.
    pub sequence: u64,
    /// The parts that were loaded.
    pub how: Loaded,
}

/// The part that a refresh has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// Nothing: a reader finds the same as before.
    Nothing,
    /// The writes since the last version.
    Added {
        /// Keys that were written or deleted, and the keys that are left in ranges that were deleted.
        keys: u64,
        /// Device memory in bytes of the changed records.
        bytes: u64,
    },
    /// All keys of some ranges, because files do not contain what was written there.
    Ranges {
        /// Why.
        reason: String,
        /// Keys of the ranges in tables.
        keys: u64,
        /// Device memory in bytes of the changed records.
        bytes: u64,
    },
}

impl View {
    /// Refreshes the view to the current state of the database. Running kernels keep their version, and lookups
    /// meanwhile find the previous version. Refreshes run one at a time. If memory is short, the memory of unused
    /// versions is freed, which waits for running kernels.
    ///
    /// # Errors
    /// The errors of [`crate::Builder::open`]. After an error, the view is unchanged.
    pub fn refresh(&self) -> Result<Refreshed> {
        let _refreshing = self.refreshing.lock();
        drop(self.in_use.take_done());
        let no_holds = self.no_holds();
        let family = self.source.take()?;
        let asked = Snapshot::asked_of(&family, &[KeyRange::default()]);
        let base = self.version();
        let change = Change {
            base: &base,
            family: &family,
            asked: &asked,
            source: &self.source,
            device: &self.device,
        };
        let (table, how) = change.made()?;
        drop(base);
        let sequence = family.sequence();
        self.publish(table, family, asked, no_holds)?;
        Ok(Refreshed { sequence, how })
    }
}

/// Bits of a slot.
const SLOT_BITS: u64 = 64;

/// A table, and the part loaded for it.
type Output = (Arc<DeviceTable>, Loaded);

/// A version, and the current state of the database.
struct Change<'a> {
    base: &'a Version,
    family: &'a Arc<FamilySnapshot>,
    asked: &'a [RocksDbRange],
    source: &'a Source,
    device: &'a Arc<DeviceRuntime>,
}

impl Change<'_> {
    /// Derives a table from the previous one.
    fn made(&self) -> Result<Output> {
        let base = self.base;
        let asked = [&base.asked, self.asked].map(joined);
        if asked[0] != asked[1] {
            let reason = "RocksDB must be asked for other keys".to_owned();
            return self.reloaded(&asked.concat(), reason);
        }
        let reason = match self.family.since(&base.family, &self.source.engine)? {
            Since::Nothing => return Ok((Arc::clone(&base.table), Loaded::Nothing)),
            Since::Anything(reason) => reason,
            Since::Written(written) => match self.added(written)? {
                Ok(made) => return Ok(made),
                Err(reason) => reason,
            },
        };
        self.reloaded(&[], reason)
    }

    /// Adds the writes, or returns the reason why that does not suffice.
    fn added(&self, written: WrittenSince) -> Result<std::result::Result<Output, String>> {
        let within = |family| Snapshot::within(family, &written.ranges);
        let tables = within(written.tables);
        // Tables that are not in this part can be the reason why RocksDB is asked for its keys too.
        let asked = Snapshot::asked_of(self.family, &written.ranges);
        if joined(&tables.asked) != joined(&asked) {
            return Ok(Err(
                "RocksDB must be asked for keys that were written".to_owned()
            ));
        }
        let unflushed = written.unflushed.map(within);
        let deleted = Snapshot::within(Arc::clone(self.family), &written.deleted);
        let mut missing = 0;
        let all = [&tables, &deleted].into_iter().chain(&unflushed);
        let loads = [
            tables.load(Tombstones::Keep),
            deleted.load(Tombstones::Drop),
        ];
        let of_unflushed = unflushed.iter().map(|part| part.load(Tombstones::Drop));
        let loads = loads.into_iter().chain(of_unflushed);
        let share = self.source.engine.admit_loads(loads, self.device)?;
        let made = self.with_room(all, |delta| {
            let mut placed = insert(self.source, &share, 0, delta)?;
            if unflushed.is_some() {
                let unseen = Arc::new(delta.unseen());
                insert(self.source, &share, 2, &unseen)?;
                missing = unseen.keys();
                if missing > 0 {
                    return Ok(None);
                }
            }
            if !written.deleted.is_empty() {
                let RowOutput { rows, bytes } = insert(self.source, &share, 1, delta)?;
                placed.rows += rows;
                placed.bytes += bytes;
                delta.erase_missing(&written.deleted)?;
            }
            Ok(Some(placed))
        })?;
        Ok(match made {
            Some((table, RowOutput { rows, bytes })) => {
                Ok((table, Loaded::Added { keys: rows, bytes }))
            }
            None => Err(format!(
                "{missing} keys that were in the log are in no file that was flushed"
            )),
        })
    }

    /// Loads all keys of the ranges in which a reader may find changes, and of `more`.
    fn reloaded(&self, more: &[KeyRange], reason: String) -> Result<Output> {
        let ranges = self.family.changed_since(&self.base.family, more);
        let there = Snapshot::within(Arc::clone(self.family), &ranges);
        let load = there.load(Tombstones::Drop);
        let share = self.source.engine.admit_loads([load], self.device)?;
        let made = self.with_room([&there], |delta| {
            let placed = insert(self.source, &share, 0, delta)?;
            delta.erase_missing(&ranges)?;
            Ok(Some(placed))
        })?;
        let (table, RowOutput { rows, bytes }) = made.ok_or_else(no_room)?;
        let how = Loaded::Ranges {
            reason,
            keys: rows,
            bytes,
        };
        Ok((table, how))
    }

    /// Stores rows in a copy of the slots, or of more slots if these do not suffice. `put` may decide that no table is
    /// needed.
    fn with_room<'t>(
        &self,
        rows: impl IntoIterator<Item = &'t Snapshot> + Clone,
        mut put: impl FnMut(&Arc<Delta>) -> Result<Option<RowOutput>>,
    ) -> Result<Option<(Arc<DeviceTable>, RowOutput)>> {
        let outside = outside(self.asked);
        let (mut base, mut keys) = (Arc::clone(&self.base.table), 0);
        let records = rows.clone().into_iter().map(Snapshot::max_record_bytes);
        let records = records.fold(0, u64::saturating_add);
        for _ in 0..MAX_REHASHES {
            let slots = DeviceTable::slot_bytes(keys).max(base.contents().slot_bytes);
            // A table with more slots, a copy of the slots, and a bit for each.
            let bytes = slots.saturating_add(slots / SLOT_BITS);
            let bytes = bytes.saturating_add(if keys > 0 { slots } else { 0 });
            let rows = rows.clone();
            let bytes = bytes.saturating_add(records);
            let reservation = reserve(self.device, rows, bytes, base.bytes_left())?;
            base.use_reservation(&reservation);
            if keys > 0 {
                base = Arc::new(self.base.table.with_slots(keys, seed())?);
            }
            if base.contents().left_over == 0 {
                let delta = Arc::new(Delta::new(&base, &outside)?);
                let Some(placed) = put(&delta)? else {
                    return Ok(None);
                };
                let table = delta.table();
                if table.contents().left_over == 0 && !table.is_nearly_full() {
                    return Ok(Some((delta.finish()?, placed)));
                }
                // Slots of removed keys stay taken.
                keys = keys.max(table.slots_taken());
            }
            keys = more_slots(keys);
        }
        Err(no_room())
    }
}

/// The ranges, with adjacent ones merged.
fn joined(asked: &[RocksDbRange]) -> Vec<KeyRange> {
    let mut joined: Vec<KeyRange> = Vec::new();
    for RocksDbRange { range, .. } in asked {
        match joined.last_mut() {
            Some(last) if last.end.is_some() && last.end == range.begin => {
                last.end.clone_from(&range.end);
            }
            _ => joined.push(range.clone()),
        }
    }
    joined
}
