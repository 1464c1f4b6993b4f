//! How a view is made.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rockmill_core::{
    CancelToken, DeclineReason, DynBackend, Error, ErrorKind, InputTable, KeyRange, Operator,
    Purpose, ReadTask, Request, Result, SnapshotRules, Support, Tombstones, Undecided, Visibility,
};
use rockmill_cuda::{
    ChangedSet, CudaBackend, CudaSettings, Device, DeviceTable, Mailboxes, RingSettings,
    TableSettings, Target,
};
use rockmill_exec::parallel;
use rockmill_scan::{Database, FamilyView, Piece, ScanEngine, ScanSettings, Store, Through};

use crate::foreseen::{Asked, Foreseen};
use crate::ring::Ring;
use crate::view::View;

/// Stored bytes of a task. Smaller ones take a GPU about as long.
const PIECE_BYTES: u64 = 64 << 20;

/// Bytes of each table that a task reads ahead.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Tasks at a time: one reads files while others are on the device.
const TASKS: usize = 4;

/// How often a table is made anew, with another seed and more slots, if keys found no room near their bucket.
const ATTEMPTS: usize = 4;

/// How a view of a column family is made.
#[derive(Debug, Clone)]
pub struct Builder {
    database: Arc<dyn Database>,
    family: String,
    target: Target,
    memory_bytes: Option<u64>,
    engine: Option<Arc<ScanEngine>>,
    ring: Option<RingSettings>,
    store: Option<Arc<dyn Store>>,
}

impl Builder {
    pub(crate) fn new(database: Arc<dyn Database>, family: &str) -> Self {
        Self {
            database,
            family: family.to_owned(),
            target: Target::Cuda(0),
            memory_bytes: None,
            engine: None,
            ring: None,
            store: None,
        }
    }

    /// Where the view lies: a GPU, or host memory with [`Target::Host`]. By default, the first GPU.
    #[must_use]
    pub fn device(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// Maximum device memory of the view in bytes. The default is four fifths of what the device has free; in host memory
    /// there is no limit. Loading takes some more for a while.
    #[must_use]
    pub fn memory_bytes(self, memory_bytes: u64) -> Self {
        Self {
            memory_bytes: Some(memory_bytes),
            ..self
        }
    }

    /// The engine that opens files. The default is one of its own.
    #[must_use]
    pub fn engine(self, engine: Arc<ScanEngine>) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    /// Lets kernels that hold the view ask the database, and write to it. They can in no other way.
    #[must_use]
    pub fn ring(self, settings: RingSettings) -> Self {
        Self {
            ring: Some(settings),
            ..self
        }
    }

    /// Who answers kernels. The default is the database, if it is open in this process.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        Self {
            store: Some(store),
            ..self
        }
    }

    /// What the view would take. Nothing is loaded, and no device is needed.
    ///
    /// # Errors
    /// As those of [`Builder::open`], but those of the device.
    pub fn foresee(&self) -> Result<Foreseen> {
        let (family, _, asked) = self.version()?;
        Ok(Foreseen::new(&family, asked))
    }

    /// Takes a view of the database as it is now, and loads it.
    ///
    /// # Errors
    /// Declined if there is no such column family, or its keys are not ordered by their bytes; Storage or Corruption if a
    /// file cannot be read; Device if the device cannot be used, or the view may not take so much memory.
    pub fn open(&self) -> Result<View> {
        let (family, pieces, asked) = self.version()?;
        let foreseen = Foreseen::new(&family, asked);
        let backend = CudaBackend::new(self.target, CudaSettings::default())?;
        let memory_bytes = match (self.memory_bytes, self.target) {
            (Some(bytes), _) => bytes,
            (None, Target::Cuda(_)) => backend.device().free_bytes()? / 5 * 4,
            (None, _) => u64::MAX,
        };
        let outside: Vec<_> = (foreseen.asked.iter())
            .map(|asked| asked.range.clone())
            .collect();
        let mut keys = foreseen.keys;
        for _ in 0..ATTEMPTS {
            let settings = TableSettings {
                keys,
                memory_bytes,
                // Who writes keys does not know it.
                seed: RandomState::new().build_hasher().finish(),
                hash_mask: u64::MAX,
                outside: &outside,
            };
            let table = DeviceTable::new(backend.device(), &settings)?;
            let place = |piece: &Piece| place(&backend, &family, piece, &table);
            parallel::map(&pieces, TASKS, place)?;
            if table.contents().left_over == 0 {
                let ring = self.start_ring(backend.device(), &family)?;
                return Ok(View::new(table, family, foreseen.asked, ring));
            }
            keys = keys.saturating_add(keys / 4);
        }
        let what = format!(
            "{ATTEMPTS} tables with different hashes had no room for some keys: give the view more memory, or report it"
        );
        Err(Error::new(ErrorKind::Device, what))
    }

    fn start_ring(
        &self,
        device: &Device,
        family: &Arc<FamilyView>,
    ) -> Result<Option<(Ring, ChangedSet)>> {
        let Some(settings) = self.ring else {
            return Ok(None);
        };
        let store = self.store.clone();
        let Some(store) = store.or_else(|| self.database.store(&self.family)) else {
            let what = "kernels cannot ask a database that is not open in this process: give the view a store, or open \
                        the database here";
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        };
        let mailboxes = Mailboxes::new(device, settings)?;
        let family = Arc::clone(family);
        let version = move |_| Some(Arc::clone(&family));
        // Who writes keys does not know it.
        let changed = ChangedSet::new(device, RandomState::new().build_hasher().finish())?;
        let ring = Ring::start(mailboxes, store, Box::new(version))?;
        Ok(Some((ring, changed)))
    }

    /// The version, the pieces that go into the table, and those that do not.
    fn version(&self) -> Result<(Arc<FamilyView>, Vec<Piece>, Vec<Asked>)> {
        let engine = match &self.engine {
            Some(engine) => Arc::clone(engine),
            None => ScanEngine::new(ScanSettings::default())?,
        };
        let family = self.database.view(&engine)?.family(&self.family)?;
        if !family.orders_by_bytes() {
            let what = format!(
                "column family {:?} does not order keys by their bytes, and there are no views of such ones",
                self.family
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        let (mut pieces, mut asked) = (Vec::new(), Vec::new());
        for piece in family.pieces(&[KeyRange::default()], PIECE_BYTES)? {
            let request = request(&family, &piece.range, family.inputs());
            let reason = match (&piece.through, request.support()) {
                (Through::Iterators(reason), _) => reason.clone(),
                (Through::Tables, Support::No(what)) => what.to_string(),
                (Through::Tables, Support::Yes) => {
                    pieces.push(piece);
                    continue;
                }
            };
            asked.push(Asked {
                range: piece.range,
                bytes: piece.bytes,
                reason,
            });
        }
        Ok((family, pieces, asked))
    }
}

/// What is asked of a device for the keys of a range.
fn request<'a>(family: &FamilyView, range: &'a KeyRange, tables: &'a [InputTable]) -> Request<'a> {
    Request {
        tables,
        range,
        visibility: Visibility::Snapshot(SnapshotRules {
            sequence: family.sequence(),
            tombstones: Tombstones::Drop,
            undecided: Undecided::Mark,
        }),
        read_ahead_bytes: READ_AHEAD_BYTES,
        purpose: Purpose::Resident,
    }
}

/// Puts the keys of a piece into the table.
fn place(
    backend: &CudaBackend,
    family: &FamilyView,
    piece: &Piece,
    table: &DeviceTable,
) -> Result<()> {
    let inputs = family.open_tables(&piece.range)?;
    let request = request(family, &piece.range, &inputs);
    DynBackend::supports(backend, &request).check()?;
    let task = ReadTask {
        request,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let report = backend.run(task, Operator::Resident { table })?;
    match report.read.is_balanced() {
        true => Ok(()),
        false => {
            let what = "entries read do not equal entries kept and dropped";
            Err(Error::new(ErrorKind::Verification, what))
        }
    }
}
