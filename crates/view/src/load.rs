//! Takes versions from a database, and loads their keys into tables.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rockmill_core::{
    CancelToken, DeclineReason, Error, ErrorKind, InputTable, KeyRange, ResidentTable, Result,
    RowOutput, Tombstones, Unsupported,
};
use rockmill_cuda::{DeviceTable, Reservation, TableSettings};
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_format::names;
use rockmill_scan::{Database, FamilySnapshot, Load, LoadShare, Piece, ReadPath, ScanEngine};

use crate::estimate::{Estimate, RocksDbRange, max_record_bytes};

/// Stored bytes of a task. Smaller ones take a GPU about as long.
const PIECE_BYTES: u64 = 64 << 20;

/// Maximum number of new tables, each with another seed and more slots, if keys found no room near their bucket.
pub const MAX_REHASHES: usize = 4;

/// The source of versions.
#[derive(Debug)]
pub struct Source {
    pub database: Arc<dyn Database>,
    pub engine: Arc<ScanEngine>,
    pub family: String,
}

/// A version before loading.
#[derive(Debug)]
pub struct Snapshot {
    pub family: Arc<FamilySnapshot>,
    /// The parts to load into a table.
    pub pieces: Vec<Piece>,
    /// The ranges of keys for which RocksDB is asked.
    pub asked: Vec<RocksDbRange>,
}

impl Source {
    /// The current version of the column family.
    pub fn take(&self) -> Result<Arc<FamilySnapshot>> {
        let view = self.database.snapshot_of(&self.engine, &[&self.family])?;
        let family = view.family(&self.family)?;
        if !family.orders_by_bytes() {
            let what = format!(
                "column family \"{}\" does not order keys by their bytes, which a view needs",
                names::escape(&names::unescape(family.name()))
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        Ok(family)
    }
}

impl Snapshot {
    /// Splits a version into parts.
    pub fn new(family: Arc<FamilySnapshot>) -> Self {
        Self::within(family, &[KeyRange::default()])
    }

    /// Splits the keys of some ranges into parts.
    pub fn within(family: Arc<FamilySnapshot>, ranges: &[KeyRange]) -> Self {
        let (mut pieces, mut asked) = (Vec::new(), Vec::new());
        for piece in family.pieces(ranges, PIECE_BYTES) {
            match unread(&family, &piece) {
                Some(reason) => asked.push(RocksDbRange::new(piece, reason)),
                None => pieces.push(piece),
            }
        }
        Self {
            family,
            pieces,
            asked,
        }
    }

    /// The parts to load into a table, as tasks.
    pub fn load(&self, tombstones: Tombstones) -> Load {
        Load {
            family: Arc::clone(&self.family),
            pieces: self.pieces.clone(),
            tombstones,
        }
    }

    /// Maximum device memory of the records of all pieces.
    pub fn max_record_bytes(&self) -> u64 {
        max_record_bytes(&self.family, &self.pieces)
    }

    /// The keys of some ranges that are not in a table. Indexes are read only if a table cannot be read.
    pub fn asked_of(family: &Arc<FamilySnapshot>, ranges: &[KeyRange]) -> Vec<RocksDbRange> {
        let mut asked = Vec::new();
        for piece in family.pieces(ranges, u64::MAX) {
            match (&piece.path, unread(family, &piece)) {
                (_, None) => {}
                (ReadPath::RocksDb(_), Some(reason)) => {
                    asked.push(RocksDbRange::new(piece, reason))
                }
                // Only a part of the version may have keys of that table.
                (ReadPath::Files, Some(_)) => {
                    return Self::within(Arc::clone(family), ranges).asked;
                }
            }
        }
        asked
    }
}

/// The reason why the keys of a part are not loaded into a table, if they are not.
fn unread(family: &FamilySnapshot, piece: &Piece) -> Option<String> {
    if let ReadPath::RocksDb(reason) = &piece.path {
        return Some(reason.clone());
    }
    // Only the CPU backend reads such tables, and it does not support resident tables.
    let is_legacy = |table: &InputTable| table.meta.footer.guard.is_legacy;
    if family.inputs().iter().any(is_legacy) {
        return Some(Unsupported::OldTable.to_string());
    }
    family.unsupported(piece).map(|what| what.to_string())
}

/// The ranges for which RocksDB must be asked.
pub fn outside(asked: &[RocksDbRange]) -> Vec<KeyRange> {
    asked.iter().map(|asked| asked.range.clone()).collect()
}

/// Loads a version into a table of its own. The table and those derived from it may take `memory_bytes`.
pub fn load(
    source: &Source,
    device: &Arc<DeviceRuntime>,
    taken: &Snapshot,
    memory_bytes: u64,
) -> Result<Arc<DeviceTable>> {
    let outside = outside(&taken.asked);
    let load = taken.load(Tombstones::Drop);
    let share = source.engine.admit_loads([load], device)?;
    let mut keys = Estimate::new(&taken.family, Vec::new()).keys;
    for _ in 0..MAX_REHASHES {
        let slot_bytes = DeviceTable::slot_bytes(keys);
        let bytes = slot_bytes.saturating_add(taken.max_record_bytes());
        let reservation = reserve(device, [taken], bytes, memory_bytes)?;
        let settings = TableSettings {
            keys,
            memory_bytes,
            reservation: Some(&reservation),
            seed: seed(),
            hash_mask: u64::MAX,
            outside: &outside,
        };
        let table = Arc::new(DeviceTable::new(device.gpu_device()?, &settings)?);
        insert(source, &share, 0, &table)?;
        if table.contents().left_over == 0 {
            return Ok(table);
        }
        keys = more_slots(keys);
    }
    Err(no_room())
}

/// Reserves device memory for a load of some versions into tables that may take `most` bytes, beside the bounds of
/// ranges and rounding.
pub fn reserve<'a>(
    device: &DeviceRuntime,
    of: impl IntoIterator<Item = &'a Snapshot>,
    bytes: u64,
    most: u64,
) -> Result<Arc<Reservation>> {
    const MORE_BYTES: u64 = 4 << 20;
    let task_bytes = of
        .into_iter()
        .map(|taken| taken.load(Tombstones::Drop).task_bytes(device));
    let bytes = bytes.saturating_add(MORE_BYTES).min(most);
    device.reserve(bytes, task_bytes.max().unwrap_or(0), &CancelToken::new())
}

/// The next number of slots, if those for `keys` had no room for some keys.
pub fn more_slots(keys: u64) -> u64 {
    keys.saturating_add(keys / 4)
}

/// The error if tables with many slots had no room for some keys.
pub fn no_room() -> Error {
    let what = format!(
        "{MAX_REHASHES} tables of different sizes had no room for some keys: give the view more memory, or report it"
    );
    Error::new(ErrorKind::Device, what)
}

/// A random seed of a hash, unknown to the writers of keys.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Stores the keys of the load at a position in a table. Returns their number, and the bytes of their records.
pub fn insert<T: ResidentTable>(
    source: &Source,
    share: &LoadShare,
    at: usize,
    table: &Arc<T>,
) -> Result<RowOutput> {
    let table = Arc::clone(table) as Arc<dyn ResidentTable>;
    source.engine.load(share, at, table)
}
