//! A database that threads write to, flush and compact at the same time, and the rows that a reader must find.
//!
//! Each writer has keys of its own. It writes one numbered batch after another, and the number as the value of a key in
//! each column family that the batch changes. So the rows show a reader the number of batches of each writer, which
//! determine all other rows. It must see all batches that were written before its snapshot was taken.

#![allow(missing_docs, reason = "names of plain records and constants")]

pub mod mode;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rust_rocksdb::{
    DB, IngestExternalFileOptions, Options, SnapshotWithThreadMode, SstFileWriter, WriteBatch,
    WriteOptions,
};

use crate::machine::{number, seed};
use mode::{MODES, Mode};

pub const FAMILIES: [&str; 3] = ["default", "a", "b"];
pub const WRITERS: usize = 2;

/// Keys of each writer in each column family, besides that of the number.
const KEYS: u64 = 100;

/// Rows of a column family.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows of some column families, by their places in [`FAMILIES`].
pub type Found = Vec<(usize, Rows)>;

/// Writes that bypass the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Besides {
    Nothing,
    Ingested,
    Unlogged,
}

/// The modes, and the usual one also with ingestion and with writes without a log.
pub fn all() -> Vec<(Mode, Besides)> {
    let mut all = vec![
        (Mode::Usual, Besides::Ingested),
        (Mode::Usual, Besides::Unlogged),
    ];
    all.extend(MODES.map(|mode| (mode, Besides::Nothing)));
    all
}

/// Calls `run` with a mode, a seed and a time, one mode after another, for `ROCKMILL_SECONDS` or `seconds` in total.
pub fn for_each_mode(seconds: u64, mut run: impl FnMut(Mode, Besides, u64, Duration)) {
    /// A database is made anew after this time.
    const LONGEST: Duration = Duration::from_secs(20);
    let (seed, all) = (seed(), all());
    let seconds = Duration::from_secs(number("ROCKMILL_SECONDS", seconds));
    let each = (seconds / all.len() as u32).min(LONGEST);
    let began = Instant::now();
    for round in 0.. {
        for &(mode, besides) in &all {
            run(mode, besides, seed.wrapping_add(round), each);
        }
        if began.elapsed() >= seconds {
            break;
        }
    }
}

/// Pseudorandom numbers.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005);
        self.0 = self.0.wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

#[derive(Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// A writer's batch.
#[derive(Debug)]
struct Batch {
    number: u64,
    changes: Vec<(usize, Change)>,
    besides: Besides,
}

/// Key of a row of a writer.
fn key(writer: usize, key: u64) -> Vec<u8> {
    format!("{writer}-{key:03}").into_bytes()
}

/// Key of the number of a writer's last batch.
fn number_key(writer: usize) -> Vec<u8> {
    format!("{writer}-number").into_bytes()
}

/// All keys that a column family may have.
pub fn keys() -> impl Iterator<Item = Vec<u8>> {
    let of = |writer| (0..KEYS).map(move |at| key(writer, at));
    (0..WRITERS).flat_map(move |writer| of(writer).chain([number_key(writer)]))
}

impl Batch {
    fn draw(random: &mut Random, writer: usize, number: u64, besides: Besides) -> Self {
        const RARE: u64 = 40;
        let is_usual = besides == Besides::Nothing || random.below(RARE) > 0;
        let besides = if is_usual { Besides::Nothing } else { besides };
        let mut changes = Vec::new();
        let only = random.below(FAMILIES.len() as u64) as usize;
        for _ in 0..1 + random.below(4) {
            let drawn = random.below(FAMILIES.len() as u64) as usize;
            // A file is ingested into one column family.
            let family = if is_usual { drawn } else { only };
            let at = random.below(KEYS);
            let change = match random.below(4 * RARE) {
                0 if is_usual => Change::DeleteRange(key(writer, at), key(writer, at + 5)),
                1..20 if is_usual => Change::Delete(key(writer, at)),
                _ => {
                    let mut value = number.to_string().into_bytes();
                    value.resize(value.len() + random.below(200) as usize, b'.');
                    Change::Put(key(writer, at), value)
                }
            };
            changes.push((family, change));
        }
        for family in 0..FAMILIES.len() {
            if changes.iter().any(|(of, _)| *of == family) {
                let value = number.to_string().into_bytes();
                changes.push((family, Change::Put(number_key(writer), value)));
            }
        }
        Self {
            number,
            changes,
            besides,
        }
    }

    fn changes(&self, family: usize) -> bool {
        self.changes.iter().any(|(of, _)| *of == family)
    }

    fn apply(&self, rows: &mut [Rows; FAMILIES.len()]) {
        for (family, change) in &self.changes {
            let rows = &mut rows[*family];
            match change {
                Change::Put(key, value) => {
                    rows.insert(key.clone(), value.clone());
                }
                Change::Delete(key) => {
                    rows.remove(key);
                }
                Change::DeleteRange(begin, end) => {
                    rows.retain(|key, _| !(begin..end).contains(&key));
                }
            }
        }
    }

    fn write(&self, db: &DB, scratch: &Path) {
        if self.besides == Besides::Ingested {
            return self.ingest(db, scratch);
        }
        let mut batch = WriteBatch::default();
        for (family, change) in &self.changes {
            let family = db.cf_handle(FAMILIES[*family]).expect("a family");
            match change {
                Change::Put(key, value) => batch.put_cf(family, key, value),
                Change::Delete(key) => batch.delete_cf(family, key),
                Change::DeleteRange(begin, end) => batch.delete_range_cf(family, begin, end),
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(self.besides == Besides::Unlogged);
        db.write_opt(&batch, &options).expect("written");
    }

    fn ingest(&self, db: &DB, scratch: &Path) {
        let family = self.changes[0].0;
        let mut rows = [(); FAMILIES.len()].map(|()| Rows::new());
        self.apply(&mut rows);
        let options = Options::default();
        let mut writer = SstFileWriter::create(&options);
        writer.open(scratch).expect("a file");
        for (key, value) in &rows[family] {
            writer.put(key, value).expect("written");
        }
        writer.finish().expect("a file");
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        // With a snapshot, the entries get a sequence number of their own.
        let _snapshot = db.snapshot();
        let family = db.cf_handle(FAMILIES[family]).expect("a family");
        let done = db.ingest_external_file_cf_opts(family, &options, vec![scratch]);
        done.expect("ingested");
    }
}

/// A database that threads write to, flush and compact at once.
pub struct Busy {
    pub db: Arc<DB>,
    pub mode: Mode,
    besides: Besides,
    seed: u64,
    dir: tempfile::TempDir,
    ends: AtomicBool,
    /// Held by writers for each batch.
    gate: RwLock<()>,
    /// The numbers of the batches that each writer has written.
    written: [AtomicU64; WRITERS],
}

impl Busy {
    pub fn new(mode: Mode, besides: Besides, seed: u64) -> Self {
        // Memtables of larger buffers live while some snapshots are taken.
        let buffer = [16 << 10, 64 << 10][Random(seed).below(2) as usize];
        let text = format!(
            "write_buffer_size={buffer};level0_file_num_compaction_trigger=2;target_file_size_base=16384;\
             max_bytes_for_level_base=65536;compression=kNoCompression;"
        );
        let dir = tempfile::tempdir().expect("a folder");
        let options = || {
            let options = Options::default().get_options_from_string(&text);
            options.expect("options")
        };
        Self {
            db: Arc::new(mode.create(&dir.path().join("db"), &FAMILIES, options)),
            mode,
            besides,
            seed,
            dir,
            ends: AtomicBool::new(false),
            gate: RwLock::default(),
            written: Default::default(),
        }
    }

    /// Calls each of `reads` again and again in a thread of its own for some time, while others write. On a busy machine it
    /// takes longer.
    pub fn run<F: FnMut(&mut Reader<'_>) + Send>(&self, time: Duration, reads: Vec<F>) {
        const LEAST: u64 = 10;
        let mut senders = [(); WRITERS].map(|()| Vec::new());
        let mut readers = Vec::new();
        for number in 0..reads.len() as u64 {
            let channels = [(); WRITERS].map(|()| channel());
            for (senders, (sender, _)) in senders.iter_mut().zip(&channels) {
                senders.push(sender.clone());
            }
            readers.push(Reader {
                random: Random(self.seed ^ ((number + 1) << 32)),
                writers: channels.map(|(_, batches)| Seen::new(batches)),
                busy: self,
            });
        }
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (writer, senders) in senders.into_iter().enumerate() {
                scope.spawn(move || self.write(writer, &senders));
            }
            scope.spawn(|| self.reshape());
            let threads = readers.into_iter().zip(reads);
            let threads = threads.map(|(mut reader, mut read)| {
                scope.spawn(move || {
                    let _ends = EndsIfPanicking(&self.ends);
                    for number in 0.. {
                        let is_over = number >= LEAST && began.elapsed() >= time;
                        if is_over || self.ends.load(Ordering::Relaxed) {
                            break;
                        }
                        read(&mut reader);
                    }
                })
            });
            let threads: Vec<_> = threads.collect();
            let failed = threads
                .into_iter()
                .filter_map(|thread| thread.join().err())
                .count();
            self.ends.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0, "a reader has found what should not be there");
        });
    }

    fn write(&self, writer: usize, readers: &[Sender<Arc<Batch>>]) {
        let _ends = EndsIfPanicking(&self.ends);
        let mut random = Random(self.seed ^ ((writer as u64 + 1) << 48));
        let scratch = self.dir.path().join(format!("{writer}.sst"));
        let pause_us = [100, 500, 2000][random.below(3) as usize];
        for number in 1.. {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            let batch = Batch::draw(&mut random, writer, number, self.besides);
            let batch = Arc::new(batch);
            for reader in readers {
                // If the reader has ended, the batch is not needed.
                let _ = reader.send(Arc::clone(&batch));
            }
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            batch.write(&self.db, &scratch);
            self.written[writer].store(number, Ordering::SeqCst);
            drop(gate);
            std::thread::sleep(Duration::from_micros(random.below(pause_us)));
        }
    }

    /// Flushes and compacts.
    fn reshape(&self) {
        let _ends = EndsIfPanicking(&self.ends);
        let mut random = Random(self.seed ^ 1);
        while !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(random.below(60)));
            let family = FAMILIES[random.below(FAMILIES.len() as u64) as usize];
            let family = self.db.cf_handle(family).expect("a family");
            match random.below(10) {
                0..5 => self.db.flush_cf(family).expect("flushed"),
                5..7 => {
                    let mut bound = || {
                        let writer = random.below(WRITERS as u64) as usize;
                        key(writer, random.below(KEYS))
                    };
                    let (one, other) = (bound(), bound());
                    let (begin, end) = (one.clone().min(other.clone()), one.max(other));
                    self.db.compact_range_cf(family, Some(begin), Some(end));
                }
                7 => {
                    let all = None::<&[u8]>;
                    self.db.compact_range_cf(family, all, all);
                }
                _ => self.db.flush_wal(false).expect("written"),
            }
        }
    }
}

/// Ends all threads when one panics.
struct EndsIfPanicking<'a>(&'a AtomicBool);

impl Drop for EndsIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A reader's knowledge of one writer.
struct Seen {
    batches: Receiver<Arc<Batch>>,
    /// Batches that are not in `rows`.
    later: VecDeque<Arc<Batch>>,
    rows: [Rows; FAMILIES.len()],
}

impl Seen {
    fn new(batches: Receiver<Arc<Batch>>) -> Self {
        Self {
            batches,
            later: VecDeque::new(),
            rows: [(); FAMILIES.len()].map(|()| Rows::new()),
        }
    }

    /// Continues to the batch with a number.
    fn reach(&mut self, number: u64) {
        self.later.extend(self.batches.try_iter());
        while let Some(batch) = self.later.front()
            && batch.number <= number
        {
            batch.apply(&mut self.rows);
            self.later.pop_front();
        }
    }
}

/// A thread that reads, and its expected rows.
pub struct Reader<'a> {
    pub random: Random,
    pub busy: &'a Busy,
    writers: [Seen; WRITERS],
}

/// The numbers of the batches that were written when a snapshot was about to be taken.
#[derive(Debug, Clone, Copy)]
pub struct Written([u64; WRITERS]);

impl<'a> Reader<'a> {
    /// The batches written so far.
    pub fn written(&self) -> Written {
        let written = self.busy.written.each_ref();
        Written(written.map(|number| number.load(Ordering::SeqCst)))
    }

    /// Runs a function while no batch is written. Flushes and compactions continue.
    pub fn while_writers_wait<T>(&self, run: impl FnOnce() -> T) -> T {
        let gate = self.busy.gate.write();
        let _gate = gate.unwrap_or_else(PoisonError::into_inner);
        run()
    }

    /// Compares rows of some column families, all from one snapshot, with the batches. Snapshots of one reader must come in
    /// their order.
    ///
    /// # Panics
    /// If there is a difference.
    pub fn check(&mut self, written: Written, found: &[(usize, Rows)]) {
        let mut expected = vec![Rows::new(); found.len()];
        for (writer, seen) in self.writers.iter_mut().enumerate() {
            let numbers = found.iter().map(|(_, rows)| number_of(rows, writer));
            seen.reach(numbers.max().unwrap_or(0));
            let missed = (seen.later.iter())
                .take_while(|batch| batch.number <= written.0[writer])
                .find(|batch| found.iter().any(|(family, _)| batch.changes(*family)));
            assert!(
                missed.is_none(),
                "batch {:?} of writer {writer} was written before the snapshot, which lacks it; it has {:?}",
                missed.map(|batch| batch.number),
                found
                    .iter()
                    .map(|(_, rows)| number_of(rows, writer))
                    .collect::<Vec<_>>()
            );
            for ((family, _), expected) in found.iter().zip(&mut expected) {
                expected.extend(seen.rows[*family].clone());
            }
        }
        for ((family, found), expected) in found.iter().zip(&expected) {
            compare(FAMILIES[*family], found, expected);
        }
    }

    /// Compares rows of a column family with RocksDB's gets of all keys at a snapshot.
    ///
    /// # Panics
    /// If there is a difference.
    pub fn check_gets(
        &self,
        snapshot: &SnapshotWithThreadMode<'_, DB>,
        family: usize,
        found: &Rows,
    ) {
        let handle = self.busy.db.cf_handle(FAMILIES[family]).expect("a family");
        let value = |key: Vec<u8>| {
            let value = snapshot.get_cf(handle, &key).expect("read")?;
            Some((key, value))
        };
        compare(FAMILIES[family], found, &keys().filter_map(value).collect());
    }
}

/// The number of the last batch of a writer that changed a column family.
fn number_of(rows: &Rows, writer: usize) -> u64 {
    let text = rows.get(&number_key(writer)).map(Vec::as_slice);
    let text = std::str::from_utf8(text.unwrap_or(b"0")).expect("digits");
    text.parse().expect("a number")
}

fn compare(family: &str, found: &Rows, expected: &Rows) {
    let text = |row: Option<&Vec<u8>>| row.map(|row| String::from_utf8_lossy(row).into_owned());
    for key in found.keys().chain(expected.keys()) {
        let (found, expected) = (found.get(key), expected.get(key));
        assert!(
            found == expected,
            "key {} of {family} has {:?} and should have {:?}",
            String::from_utf8_lossy(key),
            text(found),
            text(expected)
        );
    }
}
