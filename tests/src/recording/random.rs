//! Small databases of any kind, from a seed.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use rockmill_core::Hints;
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, FileChecksumGenFactory, Options, Snapshot,
};

use super::recorder::{Recorder, Take};
use super::{compact_level_0, quiet_options};
use crate::harness::compact_everything;
use crate::table::{Filter, TableShape};
use crate::tree::TreeShape;
use crate::workload::{SINGLE_DELETE_PREFIX, Sizes, random_key};

/// Number of databases; most give two jobs, some more.
pub const DATABASES: u64 = 72;

/// Values are pieces of one text, so that the archive of jobs is small. Half of the text is compressible.
const TEXT_BYTES: usize = 32 << 10;
/// Longest key in bytes; longer random keys would make the archive large.
const MAX_KEY_BYTES: usize = 48;
/// Maximum number of recorded jobs of one compaction.
const MAX_JOBS: usize = 3;
/// Maximum number of snapshots of a database.
const MAX_SNAPSHOTS: usize = 4;

/// Compressions of every other database; a GPU leaves them to the CPU.
const CODECS: [(&str, DBCompressionType); 5] = [
    ("snappy", DBCompressionType::Snappy),
    ("lz4", DBCompressionType::Lz4),
    ("lz4hc", DBCompressionType::Lz4hc),
    ("zstd", DBCompressionType::Zstd),
    ("zlib", DBCompressionType::Zlib),
];

/// Kinds of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Everything, to the last level.
    Fully,
    /// Level 0 and overlapping files, to level 1.
    ToLevel1,
    /// Level 0 to one file in level 0.
    WithinLevel0,
    /// The range between two keys.
    Range(usize, usize),
}

/// Parameters of a database.
struct Shape {
    name: String,
    /// Shape of older files, which are in the last level or in level 0.
    before: Option<TableShape>,
    after: TableShape,
    tree: TreeShape,
    family: &'static str,
    hints: Hints,
    number: u64,
}

impl Shape {
    /// Codecs, versions, checksums and styles alternate so that all of them occur; the rest is drawn.
    fn new(number: u64, rng: &mut StdRng) -> Self {
        let mut after = TableShape::supported(rng);
        let (codec, compression) = match number % 2 {
            0 => ("none", DBCompressionType::None),
            _ => CODECS[number as usize / 2 % CODECS.len()],
        };
        after.compression = compression;
        if number.is_multiple_of(2) {
            after.bottommost = None;
        }
        after.format_version = 2 + (number % 7) as i32;
        after.checksum = (number % 5) as u8;
        after.block_size = after.block_size.min(4 << 10);
        let before = match number % 6 {
            0 | 3 => None,
            5 => Some(TableShape::any(rng)),
            _ => Some(TableShape {
                format_version: rng.random_range(2..=8),
                ..after.clone()
            }),
        };
        let tree = TreeShape {
            universal: number % 4 == 3,
            target_file_size: *[4 << 10, 16 << 10, 64 << 10].choose(rng).expect("some"),
            ..TreeShape::random(rng)
        };
        let style = if tree.universal { "universal" } else { "level" };
        // The OPTIONS file does not contain the bits; without a hint they are inferred from the inputs' filters.
        let hinted = !matches!(before.as_ref().map(|b| b.filter), Some(f) if f == after.filter);
        let bits = match after.filter {
            Filter::Bloom(bits) | Filter::Ribbon(bits) if hinted => Some((bits * 1e3) as u32),
            _ => None,
        };
        Self {
            name: format!("{number:03}-{codec}-v{}-{style}", after.format_version),
            family: if number % 9 == 4 { "other" } else { "default" },
            hints: Hints {
                filter_millibits_per_key: bits,
                ..Hints::default()
            },
            before,
            after,
            tree,
            number,
        }
    }

    /// Returns options of the column family whose files have the shape `table`.
    fn family_options(&self, table: &TableShape) -> Options {
        let mut options = quiet_options();
        self.tree.apply(&mut options);
        options.set_write_buffer_size(TEXT_BYTES << 10);
        options.set_paranoid_file_checks(self.number % 6 == 2);
        table.apply(options)
    }

    fn open(
        &self,
        table: &TableShape,
        recorder: &Recorder,
        path: &std::path::Path,
    ) -> Result<DB, String> {
        let mut options = quiet_options();
        options.set_max_subcompactions(1 + (self.number % 4) as u32);
        options.set_use_direct_io_for_flush_and_compaction(self.number % 8 == 5);
        if self.number % 7 == 2 {
            options.set_file_checksum_gen_factory(&FileChecksumGenFactory::crc32c());
        }
        options.set_compaction_service(recorder.clone());
        let names = ["default", "other"];
        let families =
            names.map(|name| ColumnFamilyDescriptor::new(name, self.family_options(table)));
        DB::open_cf_descriptors(&options, path, families).map_err(|e| e.to_string())
    }
}

impl Shape {
    fn writer<'db, 'a>(
        &'a self,
        db: &'db DB,
        rng: &'a mut StdRng,
        text: &'a [u8],
        keys: &'a [Vec<u8>],
        is_there: &'a mut [bool],
    ) -> Writer<'db, 'a> {
        Writer {
            db,
            family: self.family,
            rng,
            text,
            keys,
            is_there,
            snapshots: Vec::new(),
        }
    }
}

/// Writes into one column family of an open database.
struct Writer<'db, 'a> {
    db: &'db DB,
    family: &'a str,
    rng: &'a mut StdRng,
    text: &'a [u8],
    keys: &'a [Vec<u8>],
    /// Whether each key for SingleDelete currently exists.
    is_there: &'a mut [bool],
    snapshots: Vec<Snapshot<'db>>,
}

impl Writer<'_, '_> {
    fn write(&mut self, writes: usize, with_snapshots: bool) -> Result<(), String> {
        let cf = self.db.cf_handle(self.family).ok_or("no such family")?;
        let flush_at = self.rng.random_range(writes / 4..=writes / 2);
        for written in 1..=writes {
            let at = self.rng.random_range(0..self.keys.len());
            let key = &self.keys[at];
            let is_single = key.starts_with(SINGLE_DELETE_PREFIX);
            let done = if is_single && self.is_there[at] {
                self.is_there[at] = false;
                self.db.single_delete_cf(cf, key)
            } else if is_single || self.rng.random_bool(0.75) {
                self.is_there[at] = true;
                let value = value(self.rng, self.text);
                self.db.put_cf(cf, key, value)
            } else {
                self.db.delete_cf(cf, key)
            };
            done.map_err(|e| e.to_string())?;
            if with_snapshots && self.snapshots.len() < MAX_SNAPSHOTS && self.rng.random_bool(0.03)
            {
                self.snapshots.push(self.db.snapshot());
            }
            if written % flush_at == 0 || written == writes {
                self.db.flush_cf(cf).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

fn value<'t>(rng: &mut StdRng, text: &'t [u8]) -> &'t [u8] {
    let length = match rng.random_range(0..100) {
        0..10 => 0,
        10..80 => rng.random_range(1..32),
        80..98 => rng.random_range(32..256),
        _ => rng.random_range(256..6000),
    };
    let at = rng.random_range(0..text.len() - length);
    &text[at..at + length]
}

/// Returns letters, then arbitrary bytes; the same for all databases.
fn text() -> Vec<u8> {
    let mut text = vec![0; TEXT_BYTES];
    StdRng::seed_from_u64(0).fill_bytes(&mut text);
    for byte in &mut text[..TEXT_BYTES / 2] {
        *byte = b'a' + *byte % 3;
    }
    text
}

/// Draws keys of one kind: short ones, numbers, keys longer than 16 bytes, or edge cases for encoders.
fn keys(rng: &mut StdRng) -> Vec<Vec<u8>> {
    let kind = rng.random_range(0..5);
    let count = rng.random_range(30..160);
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|n| match kind {
            0 => format!("key{n:06}").into_bytes(),
            1 => (n as u64 * 977).to_be_bytes().to_vec(),
            2 => format!("tenant-{:04}/user/{n:08}", n / 20).into_bytes(),
            3 => format!("{:016x}", n * 7919).into_bytes(),
            _ => random_key(rng, Sizes::USUAL, n),
        })
        .collect();
    let singles = rng.random_range(0..=count / 5);
    keys.extend(
        (0..singles).map(|n| [SINGLE_DELETE_PREFIX, format!("{n:03}").as_bytes()].concat()),
    );
    keys.iter_mut().for_each(|key| key.truncate(MAX_KEY_BYTES));
    keys.sort();
    keys.dedup();
    keys
}

/// Compacts. Does nothing if the tree does not fit the kind of compaction.
fn compact(db: &DB, shape: &Shape, keys: &[Vec<u8>], how: How) -> Result<(), String> {
    let family = db.cf_handle(shape.family).ok_or("no such family")?;
    let everything = None::<&[u8]>;
    match how {
        How::Fully if shape.family == "default" => compact_everything(db),
        How::Fully => db.compact_range_cf(family, everything, everything),
        How::ToLevel1 => drop(compact_level_0(db, shape.family, 1)),
        How::WithinLevel0 => drop(compact_level_0(db, shape.family, 0)),
        How::Range(start, end) => db.compact_range_cf(family, Some(&keys[start]), Some(&keys[end])),
    }
    Ok(())
}

/// Makes a database and records the jobs of two compactions.
pub fn make(recorder: &Recorder, number: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(number);
    let (shape, text, keys) = (Shape::new(number, &mut rng), text(), keys(&mut rng));
    let mut is_there = vec![false; keys.len()];
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = directory.path().join("db");
    if let Some(before) = &shape.before {
        let db = shape.open(before, recorder, &path)?;
        let writes = rng.random_range(50..250);
        let mut writer = shape.writer(&db, &mut rng, &text, &keys, &mut is_there);
        writer.write(writes, false)?;
        if rng.random_bool(0.7) {
            compact(&db, &shape, &keys, How::Fully)?;
        }
    }
    let db = shape.open(&shape.after, recorder, &path)?;
    let (mid, last) = (keys.len() / 3, keys.len() * 2 / 3);
    let first = match number % 5 {
        0 => How::Fully,
        1 => How::WithinLevel0,
        2 => How::Range(mid, last),
        _ => How::ToLevel1,
    };
    let second = if first == How::Fully {
        How::ToLevel1
    } else {
        How::Fully
    };
    let with_snapshots = rng.random_bool(0.5);
    let mut held = Vec::new();
    for (how, name) in [(first, "first"), (second, "second")] {
        let writes = rng.random_range(60..300);
        let mut writer = shape.writer(&db, &mut rng, &text, &keys, &mut is_there);
        writer.write(writes, with_snapshots)?;
        held.append(&mut writer.snapshots);
        let take = Take {
            least: 0,
            most: MAX_JOBS,
            hints: shape.hints.clone(),
            ..Take::one(&format!("{}-{name}", shape.name))
        };
        recorder.during(take, || compact(&db, &shape, &keys, how))?;
    }
    Ok(())
}
