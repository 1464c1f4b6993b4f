//! A database of the crate `rocksdb` has the same content with Rockmill and without.

use std::path::Path;
use std::process::Command;

use rockmill_rocksdb::{Service, SetCompactionService};
use rocksdb::{DB, IteratorMode, Options};

const KEYS: u32 = 20_000;

type Pair = (Box<[u8]>, Box<[u8]>);

fn filled(path: &Path, service: Option<&Service>) -> Vec<Pair> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(128 << 10);
    options.set_target_file_size_base(256 << 10);
    if let Some(service) = service {
        options.set_compaction_service(service);
    }
    let db = DB::open(&options, path).expect("a new database");
    for i in 0..2 * KEYS {
        let key = format!("key{:08}", i.wrapping_mul(7919) % KEYS);
        match i % 7 {
            0 => db.delete(key),
            _ => db.put(key, format!("value {i}").repeat(3)),
        }
        .expect("room");
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let content = db.iterator(IteratorMode::Start);
    content.map(|pair| pair.expect("readable")).collect()
}

#[test]
fn content_is_the_same_with_and_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::builder().threads(2).min_job_bytes(0).build();
    let service = service.expect("good settings");
    let with = filled(&folder.path().join("with"), Some(&service));
    let without = filled(&folder.path().join("without"), None);
    assert!(with == without && !with.is_empty());
    let stats = service.stats();
    assert!(stats.jobs_done > 0 && stats.jobs_failed == 0, "{stats}");
    assert!(!folder.path().join("with/rockmill.staging").exists());
}

#[test]
fn the_example_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("it has a path");
    let built = test.ancestors().nth(2).expect("a profile's folder");
    let mut example = Command::new(built.join("examples/rocksdb"));
    let output = example.arg(folder.path().join("database")).output();
    let output = output.expect("cargo has built it");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(printed.contains(" done"), "{printed}");
}
