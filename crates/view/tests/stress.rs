//! Views in device memory of a database that is written to, flushed and compacted, compared key by key after each refresh.
//!
//! `ROCKMILL_SECONDS=N` sets the duration, `ROCKMILL_SEED=N` draws the same writes.

mod helpers;

use rockmill_testkit::busy;
use rockmill_testkit::scans as common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rockmill_live::LiveDatabase;
use rockmill_scan::Database;
use rockmill_testkit::busy::mode::Mode;
use rockmill_testkit::busy::{Busy, FAMILIES, Reader, Rows};
use rockmill_view::{Loaded, View};

/// Number of refreshes by kind.
#[derive(Debug, Default)]
struct Counts {
    nothing: AtomicU64,
    added: AtomicU64,
    ranges: AtomicU64,
}

/// Refreshes the view of a column family, and compares it.
fn refresh(view: &View, family: usize, counts: &Counts, reader: &mut Reader<'_>) {
    let keys: Vec<_> = busy::keys().collect();
    let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let written = reader.written();
    let refreshed = || view.refresh().expect("refreshed");
    let is_with_gets = reader.random.below(4) == 0;
    let (how, snapshot) = match is_with_gets || reader.busy.mode == Mode::Unordered {
        true => {
            let db = &reader.busy.db;
            let (refreshed, snapshot) = reader.while_writers_wait(|| (refreshed(), db.snapshot()));
            assert_eq!(snapshot.sequence_number(), Some(refreshed.sequence));
            (refreshed.how, Some(snapshot))
        }
        false => (refreshed().how, None),
    };
    let count = match how {
        Loaded::Nothing => &counts.nothing,
        Loaded::Added { .. } => &counts.added,
        Loaded::Ranges { .. } => &counts.ranges,
    };
    count.fetch_add(1, Ordering::Relaxed);
    let values = view.get(&refs).expect("values");
    let rows = keys.iter().cloned().zip(values);
    let rows: Rows = rows
        .filter_map(|(key, value)| Some((key, value?)))
        .collect();
    if let Some(snapshot) = snapshot {
        reader.check_gets(&snapshot, family, &rows);
    }
    reader.check(written, &[(family, rows)]);
    std::thread::sleep(Duration::from_millis(reader.random.below(3)));
}

#[test]
fn a_refreshed_view_has_each_key_that_was_written_before_whatever_others_do() {
    let (mut all, mut all_added) = (0, 0);
    busy::for_each_mode(5, |mode, besides, seed, time| {
        let busy = Busy::new(mode, besides, seed);
        let least = (seed % 2 == 0).then_some(Duration::from_millis(50));
        let live = LiveDatabase::new(Arc::clone(&busy.db)).flush_every(least);
        let database: Arc<dyn Database> = Arc::new(live);
        let counts = &Counts::default();
        let reads = FAMILIES.iter().enumerate().map(|(family, name)| {
            let view = helpers::builder(&database, name).engine(helpers::engine());
            let view = view.open().expect("a view");
            move |reader: &mut Reader<'_>| refresh(&view, family, counts, reader)
        });
        busy.run(time, reads.collect());
        println!("{mode:?}, besides {besides:?}: {counts:?}");
        let [nothing, added, ranges] = [&counts.nothing, &counts.added, &counts.ranges]
            .map(|count| count.load(Ordering::Relaxed));
        all += nothing + added + ranges;
        all_added += added;
    });
    println!("{all} refreshes");
    assert!(all_added > 0);
}
