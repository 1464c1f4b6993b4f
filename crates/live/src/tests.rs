//! A flush comes between a view's snapshot and the files that it holds.

use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_scan::{FamilyView, ScanSettings, Since};
use rust_rocksdb::{DB, DBWALIterator, Options};

use super::*;

/// A database that writes a key and flushes it when its snapshot has been taken, if it is to.
struct Late {
    db: DB,
    is_armed: AtomicBool,
}

impl Handle for Late {
    fn path(&self) -> &Path {
        Handle::path(&self.db)
    }
    fn names(&self) -> BTreeSet<String> {
        self.db.names()
    }
    fn latest_sequence(&self) -> u64 {
        self.db.latest_sequence()
    }
    fn property(&self, family: &str, name: &str) -> Result<Option<u64>> {
        self.db.property(family, name)
    }
    fn files(&self) -> Result<BTreeMap<String, BTreeSet<u64>>> {
        self.db.files()
    }
    fn logs(&self) -> Result<BTreeMap<u64, u64>> {
        self.db.logs()
    }
    fn logged_after(&self, sequence: u64) -> Result<DBWALIterator> {
        self.db.logged_after(sequence)
    }
    fn flush(&self, family: &str) -> Result<()> {
        Handle::flush(&self.db, family)
    }
    fn pin(&self) -> BoxedPin<'_> {
        let pin = self.db.pin();
        if self.is_armed.swap(false, Ordering::Relaxed) {
            self.db.put(b"late", b"1").expect("written");
            self.db.flush().expect("flushed");
        }
        pin
    }
    fn catch_up(&self) -> Result<()> {
        self.db.catch_up()
    }
    fn get(&self, family: &str, keys: &[&[u8]], value: ValueFn<'_>) {
        Handle::get(&self.db, family, keys, value);
    }
    fn write(&self, family: &str, writes: &[Write<'_>], options: &WriteOptions) -> Result<Written> {
        Handle::write(&self.db, family, writes, options)
    }
}

#[test]
fn a_file_with_entries_behind_the_snapshot_is_new_to_the_next_view() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).expect("the database opens");
    db.put(b"early", b"1").expect("written");
    db.flush().expect("flushed");
    let late = Arc::new(Late {
        db,
        is_armed: AtomicBool::new(true),
    });
    let live = LiveDatabase::new(Arc::clone(&late));
    let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
    let take = || -> Arc<FamilyView> {
        let view = live.view(&engine).expect("a view");
        view.family("default").expect("a family")
    };
    let base = take();
    let [_, file] = base.files() else {
        panic!("{:?}", base.files());
    };
    assert_eq!(base.sequence() + 1, late.latest_sequence());
    let now = take();
    let Since::Written(written) = now.since(&base, &engine).expect("edits") else {
        panic!("nothing was written");
    };
    assert_eq!(written.tables.files(), std::slice::from_ref(file));
    assert!(matches!(take().since(&now, &engine), Ok(Since::Nothing)));
    late.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    late.db.put(b"early", b"2").expect("written");
    late.db.flush().expect("flushed");
    late.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let Since::Anything(reason) = take().since(&base, &engine).expect("edits") else {
        panic!("the file has gone");
    };
    assert!(reason.contains("was compacted before it was read"));
}
