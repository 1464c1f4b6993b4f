//! Views of a database that is written to, flushed and compacted, compared key by key.
//!
//! `ROCKMILL_SECONDS=N` runs for N seconds, `ROCKMILL_SEED=N` draws the same writes.

mod busy;
#[path = "../../scan/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use busy::mode::Mode;
use busy::{Busy, FAMILIES, Found, Reader};
use rockmill_core::KeyRange;
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, ScanEngine, ScanSettings, View};

const READERS: usize = 2;

/// What was compared.
#[derive(Debug, Default)]
struct Counts {
    views: AtomicU64,
    /// Views that were also compared with RocksDB's gets.
    with_gets: AtomicU64,
    /// Views that were scanned again later.
    again: AtomicU64,
    tables: AtomicU64,
    iterators: AtomicU64,
}

fn one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

struct Views<'a> {
    live: &'a LiveDatabase<rust_rocksdb::DB>,
    engine: &'a Arc<ScanEngine>,
    counts: &'a Counts,
    /// Some of the last views and their rows.
    held: VecDeque<(Arc<View>, Found)>,
}

impl Views<'_> {
    fn rows(&self, view: &View, piece_bytes: u64) -> Found {
        let rows = |(at, family): (usize, &&str)| {
            let family = view.family(family).expect("its files are there");
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
        let view = || self.live.view(self.engine).expect("a view");
        // Many views make many tables of unflushed entries.
        for _ in 0..reader.random.below(3) {
            view();
        }
        let written = reader.written();
        let (view, rows) = match reader.random.below(4) {
            0 => {
                let db = &reader.busy.db;
                let (view, snapshot) = reader.while_writers_wait(|| (view(), db.snapshot()));
                assert_eq!(snapshot.sequence_number(), Some(view.sequence()));
                let rows = self.rows(&view, piece_bytes);
                for (family, rows) in &rows {
                    reader.check_gets(&snapshot, *family, rows);
                }
                one(&self.counts.with_gets);
                (view, rows)
            }
            _ => {
                // A snapshot may show a part of a batch until its write ends.
                let view = match reader.busy.mode == Mode::Unordered {
                    true => reader.while_writers_wait(view),
                    false => view(),
                };
                let rows = self.rows(&view, piece_bytes);
                (view, rows)
            }
        };
        reader.check(written, &rows);
        one(&self.counts.views);
        self.held.push_back((view, rows));
        if self.held.len() == HELD {
            let at = reader.random.below(HELD as u64) as usize;
            let (view, rows) = self.held.remove(at).expect("so many");
            if reader.random.below(4) == 0 {
                assert_eq!(self.rows(&view, piece_bytes), rows, "it is another time");
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
        // Views flush unlogged entries at times, or never.
        let least = (seed % 2 == 0).then_some(Duration::from_millis(50));
        let live = LiveDatabase::new(Arc::clone(&busy.db)).flush_every(least);
        let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
        let counts = Counts::default();
        let views = |_| Views {
            live: &live,
            engine: &engine,
            counts: &counts,
            held: VecDeque::new(),
        };
        let reads = (0..READERS).map(views);
        let reads = reads.map(|mut views| move |reader: &mut Reader<'_>| views.read(reader));
        busy.run(time, reads.collect());
        println!("{mode:?}, besides {besides:?}: {counts:?}");
        all += counts.views.into_inner();
        tables += counts.tables.into_inner();
        with_gets += counts.with_gets.into_inner();
    });
    println!("{all} views");
    assert!(tables > 0 && with_gets > 0);
}
