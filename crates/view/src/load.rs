//! Versions are taken from a database, and their keys go into tables.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{
    CancelToken, DeclineReason, DynBackend, Error, ErrorKind, InputTable, KeyRange, Operator,
    Output, Purpose, ReadTask, Request, ResidentTable, Result, RowOutput, SnapshotRules, Support,
    Tombstones, Undecided, Unsupported, Visibility,
};
use rockmill_cuda::{CudaBackend, DeviceTable, TableSettings, Target};
use rockmill_exec::parallel;
use rockmill_format::names;
use rockmill_scan::{Database, FamilyView, Piece, ScanEngine, Through};

use crate::foreseen::{Asked, Foreseen};

/// Stored bytes of a task. Smaller ones take a GPU about as long.
const PIECE_BYTES: u64 = 64 << 20;

/// Bytes of each table that a task reads ahead.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Tasks at a time: some read files while others are on the device.
const TASKS: usize = 8;

/// How often a table is made anew, with another seed and more slots, if keys found no room near their bucket.
pub const ATTEMPTS: usize = 4;

/// Where versions come from, and where they go.
#[derive(Debug)]
pub struct Source {
    pub database: Arc<dyn Database>,
    pub engine: Arc<ScanEngine>,
    pub family: String,
    pub target: Target,
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
    let request = request(family, &piece.range, family.inputs(), Tombstones::Drop);
    match request.support() {
        Support::No(what) => Some(what.to_string()),
        Support::Yes => None,
    }
}

/// The ranges of what is asked for.
pub fn outside(asked: &[Asked]) -> Vec<KeyRange> {
    asked.iter().map(|asked| asked.range.clone()).collect()
}

/// Loads a version into a table of its own, which and whose successors may take so much memory.
pub fn load(backend: &CudaBackend, taken: &Taken, memory_bytes: u64) -> Result<DeviceTable> {
    let outside = outside(&taken.asked);
    let mut keys = Foreseen::new(&taken.family, Vec::new()).keys;
    for _ in 0..ATTEMPTS {
        let settings = TableSettings {
            keys,
            memory_bytes,
            seed: seed(),
            hash_mask: u64::MAX,
            outside: &outside,
        };
        let table = DeviceTable::new(backend.device(), &settings)?;
        place(backend, taken, Tombstones::Drop, &table)?;
        if table.contents().left_over == 0 {
            return Ok(table);
        }
        keys = more_slots(keys);
    }
    Err(no_room())
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
pub fn place(
    backend: &CudaBackend,
    taken: &Taken,
    tombstones: Tombstones,
    table: &dyn ResidentTable,
) -> Result<RowOutput> {
    let (rows, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    parallel::map(&taken.pieces, TASKS, |piece: &Piece| {
        let placed = place_piece(backend, &taken.family, piece, tombstones, table)?;
        rows.fetch_add(placed.rows, Ordering::Relaxed);
        bytes.fetch_add(placed.bytes, Ordering::Relaxed);
        Ok(())
    })?;
    Ok(RowOutput {
        rows: rows.into_inner(),
        bytes: bytes.into_inner(),
    })
}

fn place_piece(
    backend: &CudaBackend,
    family: &FamilyView,
    piece: &Piece,
    tombstones: Tombstones,
    table: &dyn ResidentTable,
) -> Result<RowOutput> {
    let inputs = family.open_tables(&piece.range)?;
    let request = request(family, &piece.range, &inputs, tombstones);
    DynBackend::supports(backend, &request).check()?;
    let task = ReadTask {
        request,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let report = backend.run(task, Operator::Resident { table })?;
    match (report.read.is_balanced(), report.output) {
        (true, Output::Rows(rows)) => Ok(rows),
        _ => {
            let what = "entries read do not equal entries kept and dropped";
            Err(Error::new(ErrorKind::Verification, what))
        }
    }
}

/// What is asked of a device for the keys of a range.
fn request<'a>(
    family: &FamilyView,
    range: &'a KeyRange,
    tables: &'a [InputTable],
    tombstones: Tombstones,
) -> Request<'a> {
    Request {
        tables,
        range,
        visibility: Visibility::Snapshot(SnapshotRules {
            sequence: family.sequence(),
            tombstones,
            undecided: Undecided::Mark,
        }),
        read_ahead_bytes: READ_AHEAD_BYTES,
        purpose: Purpose::Resident,
    }
}
