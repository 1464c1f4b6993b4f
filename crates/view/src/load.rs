//! Versions are taken from a database, and their keys go into tables.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rockmill_core::{
    CancelToken, DeclineReason, Error, ErrorKind, InputTable, KeyRange, ResidentTable, Result,
    RowOutput, Tombstones, Unsupported,
};
use rockmill_cuda::{DeviceTable, Reservation, TableSettings};
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_format::names;
use rockmill_scan::{Database, FamilyView, Load, Piece, ScanEngine, Through};

use crate::foreseen::{Asked, Foreseen, max_record_bytes};

/// Stored bytes of a task. Smaller ones take a GPU about as long.
const PIECE_BYTES: u64 = 64 << 20;

/// How often a table is made anew, with another seed and more slots, if keys found no room near their bucket.
pub const ATTEMPTS: usize = 4;

/// Where versions come from.
#[derive(Debug)]
pub struct Source {
    pub database: Arc<dyn Database>,
    pub engine: Arc<ScanEngine>,
    pub family: String,
}

/// A version, of which nothing is loaded.
#[derive(Debug)]
pub struct Taken {
    pub family: Arc<FamilyView>,
    /// What goes into a table.
    pub pieces: Vec<Piece>,
    /// What does not.
    pub asked: Vec<Asked>,
}

impl Source {
    /// The column family as it is now.
    pub fn take(&self) -> Result<Arc<FamilyView>> {
        let view = self.database.view_of(&self.engine, &[&self.family])?;
        let family = view.family(&self.family)?;
        if !family.orders_by_bytes() {
            let what = format!(
                "column family \"{}\" does not order keys by their bytes, and there are no views of such ones",
                names::escape(&names::unescape(family.name()))
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        Ok(family)
    }
}

impl Taken {
    /// Cuts a version into pieces.
    pub fn new(family: Arc<FamilyView>) -> Result<Self> {
        Self::within(family, &[KeyRange::default()])
    }

    /// Cuts the keys of some ranges into pieces.
    pub fn within(family: Arc<FamilyView>, ranges: &[KeyRange]) -> Result<Self> {
        let (mut pieces, mut asked) = (Vec::new(), Vec::new());
        for piece in family.pieces(ranges, PIECE_BYTES)? {
            match unread(&family, &piece) {
                Some(reason) => asked.push(Asked::new(piece, reason)),
                None => pieces.push(piece),
            }
        }
        Ok(Self {
            family,
            pieces,
            asked,
        })
    }

    /// What goes into a table, as tasks.
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

    /// The part of a version that does not go into a table. Its indexes are read only if a table cannot be read.
    pub fn asked_of(family: &Arc<FamilyView>) -> Result<Vec<Asked>> {
        let mut asked = Vec::new();
        for piece in family.pieces(&[KeyRange::default()], u64::MAX)? {
            match (&piece.through, unread(family, &piece)) {
                (_, None) => {}
                (Through::Iterators(_), Some(reason)) => asked.push(Asked::new(piece, reason)),
                // Only a part of it may have keys of that table.
                (Through::Tables, Some(_)) => return Ok(Self::new(Arc::clone(family))?.asked),
            }
        }
        Ok(asked)
    }
}

/// Why the keys of a piece do not go into a table, if they do not.
fn unread(family: &FamilyView, piece: &Piece) -> Option<String> {
    if let Through::Iterators(reason) = &piece.through {
        return Some(reason.clone());
    }
    // Only the CPU backend reads such tables, which does not make resident ones.
    let is_legacy = |table: &InputTable| table.meta.footer.guard.is_legacy;
    if family.inputs().iter().any(is_legacy) {
        return Some(Unsupported::OldTable.to_string());
    }
    family.unsupported(piece).map(|what| what.to_string())
}

/// The ranges of what is asked for.
pub fn outside(asked: &[Asked]) -> Vec<KeyRange> {
    asked.iter().map(|asked| asked.range.clone()).collect()
}

/// Loads a version into a table of its own, which and whose successors may take so much memory.
pub fn load(
    source: &Source,
    device: &Arc<DeviceRuntime>,
    taken: &Taken,
    memory_bytes: u64,
) -> Result<Arc<DeviceTable>> {
    let outside = outside(&taken.asked);
    let mut keys = Foreseen::new(&taken.family, Vec::new()).keys;
    for _ in 0..ATTEMPTS {
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
        place(source, device, taken, Tombstones::Drop, &table)?;
        if table.contents().left_over == 0 {
            return Ok(table);
        }
        keys = more_slots(keys);
    }
    Err(no_room())
}

/// Reserves device memory for a load of some versions into tables that may take `most` bytes, beside those of the bounds of
/// ranges and of what is rounded up.
pub fn reserve<'a>(
    device: &DeviceRuntime,
    of: impl IntoIterator<Item = &'a Taken>,
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

/// Keys for which there are to be slots if those for `keys` had no room for some.
pub fn more_slots(keys: u64) -> u64 {
    keys.saturating_add(keys / 4)
}

/// Tables with many slots had no room for some keys.
pub fn no_room() -> Error {
    let what = format!(
        "{ATTEMPTS} tables of different sizes had no room for some keys: give the view more memory, or report it"
    );
    Error::new(ErrorKind::Device, what)
}

/// The random seed of a hash. A writer of keys does not know it.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Puts the keys of a version into a table. Returns how many they are, and the bytes of their records.
pub fn place<T: ResidentTable>(
    source: &Source,
    device: &Arc<DeviceRuntime>,
    taken: &Taken,
    tombstones: Tombstones,
    table: &Arc<T>,
) -> Result<RowOutput> {
    let table = Arc::clone(table) as Arc<dyn ResidentTable>;
    source.engine.load(&taken.load(tombstones), device, table)
}
