//! Snapshots of a database that is written to, flushed and compacted, compared key by key.
//!
//! `ROCKMILL_SECONDS=N` runs for N seconds, `ROCKMILL_SEED=N` draws the same writes.

use rockmill_testkit::busy;
use rockmill_testkit::scans as common;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rockmill_core::KeyRange;
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, ScanEngine, ScanSettings, Snapshot};
use rockmill_testkit::busy::mode::Mode;
use rockmill_testkit::busy::{Busy, FAMILIES, Found, Reader};

const READERS: usize = 2;

/// What was compared.
#[derive(Debug, Default)]
struct Counts {
    snapshots: AtomicU64,
    /// Snapshots that were also compared with RocksDB's gets.
    with_gets: AtomicU64,
    /// Snapshots that were scanned again later.
    again: AtomicU64,
    tables: AtomicU64,
    iterators: AtomicU64,
}

fn one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

struct Snapshots<'a> {
    live: &'a LiveDatabase<rust_rocksdb::DB>,
    engine: &'a Arc<ScanEngine>,
    counts: &'a Counts,
    /// Some of the last snapshots and their rows.
    held: VecDeque<(Arc<Snapshot>, Found)>,
}

impl Snapshots<'_> {
    fn rows(&self, snapshot: &Snapshot, piece_bytes: u64) -> Found {
        let rows = |(at, family): (usize, &&str)| {
            let family = snapshot.family(family).expect("its files are there");
            let all = [KeyRange::default()];
            let (rows, reports) = common::scan(self.engine, &family, &all, piece_bytes);
            for report in reports {
                match report.through_iterators {
                    Some(_) => one(&self.counts.iterators),
                    None => one(&self.counts.tables),
                }
            }
            (at, rows.into_iter().collect())
        };
        FAMILIES.iter().enumerate().map(rows).collect()
    }

    fn read(&mut self, reader: &mut Reader<'_>) {
        const HELD: usize = 4;
        let piece_bytes = if reader.random.below(8) == 0 {
            3000
        } else {
            1 << 30
        };
        let snapshot = || self.live.snapshot(self.engine).expect("a snapshot");
        // Many snapshots make many tables of unflushed entries.
        for _ in 0..reader.random.below(3) {
            snapshot();
        }
        let written = reader.written();
        let (snapshot, rows) = match reader.random.below(4) {
            0 => {
                let db = &reader.busy.db;
                let (snapshot, of_rocksdb) =
                    reader.while_writers_wait(|| (snapshot(), db.snapshot()));
                assert_eq!(of_rocksdb.sequence_number(), Some(snapshot.sequence()));
                let rows = self.rows(&snapshot, piece_bytes);
                for (family, rows) in &rows {
                    reader.check_gets(&of_rocksdb, *family, rows);
                }
                one(&self.counts.with_gets);
                (snapshot, rows)
            }
            _ => {
                // A of_rocksdb may show a part of a batch until its write ends.
                let snapshot = match reader.busy.mode == Mode::Unordered {
                    true => reader.while_writers_wait(snapshot),
                    false => snapshot(),
                };
                let rows = self.rows(&snapshot, piece_bytes);
                (snapshot, rows)
            }
        };
        reader.check(written, &rows);
        one(&self.counts.snapshots);
        self.held.push_back((snapshot, rows));
        if self.held.len() == HELD {
            let at = reader.random.below(HELD as u64) as usize;
            let (snapshot, rows) = self.held.remove(at).expect("so many");
            if reader.random.below(4) == 0 {
                assert_eq!(
                    self.rows(&snapshot, piece_bytes),
                    rows,
                    "it is another time"
                );
                one(&self.counts.again);
            }
        }
        std::thread::sleep(Duration::from_millis(reader.random.below(3)));
    }
}

#[test]
fn views_have_each_key_that_was_written_before_whatever_others_do() {
    let (mut all, mut tables, mut with_gets) = (0, 0, 0);
    busy::for_each_mode(10, |mode, besides, seed, time| {
        let busy = Busy::new(mode, besides, seed);
        // Snapshots flush unlogged entries at times, or never.
        let least = (seed % 2 == 0).then_some(Duration::from_millis(50));
        let live = LiveDatabase::new(Arc::clone(&busy.db)).flush_every(least);
        let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
        let counts = Counts::default();
        let snapshots = |_| Snapshots {
            live: &live,
            engine: &engine,
            counts: &counts,
            held: VecDeque::new(),
        };
        let reads = (0..READERS).map(snapshots);
        let reads =
            reads.map(|mut snapshots| move |reader: &mut Reader<'_>| snapshots.read(reader));
        busy.run(time, reads.collect());
        println!("{mode:?}, besides {besides:?}: {counts:?}");
        all += counts.snapshots.into_inner();
        tables += counts.tables.into_inner();
        with_gets += counts.with_gets.into_inner();
    });
    println!("{all} snapshots");
    assert!(tables > 0 && with_gets > 0);
}
