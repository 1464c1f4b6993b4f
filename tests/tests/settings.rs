//! Effects of settings on a database's compactions, at the start and while they change.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill::{Builder, Service, Verification};
use rockmill_storage::LocalStorage;
use rockmill_testkit::hooked::{Step, hooked};
use rockmill_testkit::machine::{Mount, again_where_mounting_is_allowed};
use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, assert_jobs_add_up, assert_nothing_staged, compact_everything,
    fill, open, options, put, wait_for_compact,
};
use rockmill_tests::reasons::{MANIFEST, PAUSED, SMALL_JOB, STAGING_FOLDER};
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::{DB, Env, Options};
use tempfile::TempDir;

/// Number of writes of a small database: some hundred KiB.
const WRITES: usize = 6_000;

fn build(builder: Builder) -> Service {
    builder.threads(2).build().expect("the settings are good")
}

fn small_files(service: &Service) -> Options {
    let mut options = options(service);
    let tree = TreeShape {
        target_file_size: 32 << 10,
        ..TreeShape::default()
    };
    tree.apply(&mut options);
    options
}

/// Creates a database at `path` and compacts it.
fn compacted(service: &Service, path: &Path, seed: u64) -> (DB, Content) {
    let db = open(&small_files(service), path);
    let content = fill(&db, WRITES, seed);
    compact_everything(&db);
    assert_content(&db, &content);
    (db, content)
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn small_jobs_are_left_to_rocksdb_until_they_are_wanted() {
    let service = build(Service::builder().min_job_bytes(1 << 30));
    let directory = temporary();
    let (db, mut content) = compacted(&service, &directory.path().join("db"), 1);
    assert_declined(&service.stats(), &[SMALL_JOB]);
    service
        .change_settings(|settings| settings.min_job_bytes = 1)
        .expect("it makes sense");
    put(&db, &mut content, b"key00000001", b"new");
    compact_everything(&db);
    let stats = service.stats();
    assert!(stats.jobs_done > 0, "{stats}");
    assert_eq!(stats.jobs_declined, 1, "{stats}");
    assert_content(&db, &content);
}

#[test]
fn a_paused_service_takes_no_jobs_until_it_goes_on() {
    let service = build(Service::builder().min_job_bytes(0));
    let pause = |paused| {
        let changed = service.change_settings(|settings| settings.paused = paused);
        changed.expect("it makes sense");
    };
    pause(true);
    let directory = temporary();
    let (db, mut content) = compacted(&service, &directory.path().join("db"), 8);
    assert_declined(&service.stats(), &[PAUSED]);
    pause(false);
    put(&db, &mut content, b"key00000001", b"new");
    compact_everything(&db);
    let stats = service.stats();
    assert!(stats.jobs_done > 0, "{stats}");
    assert_eq!(stats.jobs_declined, 1, "{stats}");
    assert_content(&db, &content);
}

#[test]
fn databases_may_share_a_staging_folder() {
    let directory = temporary();
    let staging = directory.path().join("staging");
    let service = build(Service::builder().min_job_bytes(0).staging_dir(&staging));
    let databases = ["a", "b"].map(|name| {
        let path = directory.path().join(name);
        let (db, content) = compacted(&service.clone(), &path, 2);
        assert_nothing_staged(&path);
        (db, content)
    });
    assert_done(&service.stats());
    assert_eq!(service.stats().jobs_done, 2);
    for (db, content) in &databases {
        assert_content(db, content);
    }
    let left: Vec<_> = staging.read_dir().expect("it was made").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_staging_folder_on_another_mount_is_declined() {
    let directory = temporary();
    let below = |name: &str| directory.path().join(name);
    std::fs::create_dir_all(below("original")).expect("make a directory");
    let mounts = [
        Mount::memory("64m", below("other")),
        Mount::new(&["--bind"], &below("original"), below("bound")),
    ];
    for (number, mount) in mounts.iter().enumerate() {
        let Some(staging) = mount.as_ref().map(Mount::path) else {
            return again_where_mounting_is_allowed(
                "a_staging_folder_on_another_mount_is_declined",
            );
        };
        let service = build(Service::builder().min_job_bytes(0).staging_dir(staging));
        let path = below(&format!("db{number}"));
        let (db, mut content) = compacted(&service, &path, 3);
        // RocksDB continues normally.
        put(&db, &mut content, b"key00000001", b"new");
        compact_everything(&db);
        assert_content(&db, &content);
        let stats = service.stats();
        assert_declined(&stats, &[STAGING_FOLDER]);
        let error = stats.last_error.expect("declined");
        assert!(error.contains("set staging_dir"), "{error}");
        let left: Vec<_> = staging.read_dir().expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!path.join("rockmill.trial").exists());
    }
}

#[test]
fn a_bit_that_the_file_system_flips_is_noticed_at_the_full_level() {
    for (files_before, at_byte) in [(0, 10), (1, 5_000), (3, 20_000)] {
        let storage = hooked(LocalStorage, move |_, step| {
            if let Step::Write { table, at, bytes } = step
                && table == Some(files_before)
                && let Some(byte) = usize::checked_sub(at_byte, at).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= 1;
            }
            Ok(())
        });
        let builder = Service::builder()
            .min_job_bytes(0)
            .storage(storage)
            .verification(Verification::Full);
        let service = build(builder);
        let directory = temporary();
        let path = directory.path().join("db");
        let (db, mut content) = compacted(&service, &path, 4);
        let stats = service.stats();
        assert_eq!((stats.jobs_done, stats.jobs_failed), (0, 1), "{stats}");
        assert_eq!(stats.verification_failures, 1, "{stats}");
        assert_nothing_staged(&path);
        // The next job runs on a sound file system.
        put(&db, &mut content, b"key00000001", b"new");
        compact_everything(&db);
        let stats = service.stats();
        assert!(stats.jobs_done > 0, "{stats}");
        assert_eq!(stats.verification_failures, 1, "{stats}");
        assert_content(&db, &content);
    }
}

#[test]
fn settings_may_change_under_load() {
    const ROUNDS: usize = 12;
    /// Coprime to the number of writes.
    const SPREAD: usize = 7919;
    let service = build(Service::builder().min_job_bytes(0));
    let directory = temporary();
    let mut options = small_files(&service);
    options.set_disable_auto_compactions(false);
    options.set_level_zero_file_num_compaction_trigger(2);
    options.set_max_background_jobs(4);
    let db = open(&options, directory.path());
    let is_over = AtomicBool::new(false);
    let mut content = Content::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let levels = [
                Verification::SAMPLED,
                Verification::Default,
                Verification::Full,
            ];
            for round in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let change = service.change_settings(|settings| {
                    settings.threads = 1 + round % 4;
                    settings.memory_budget_bytes = (32 + round as u64 % 64) << 20;
                    settings.nice = round as u8 % 3;
                    settings.verification = levels[round % levels.len()];
                });
                change.expect("they make sense");
                std::thread::yield_now();
            }
        });
        for round in 0..ROUNDS {
            for write in 0..WRITES {
                let key = format!("key{:08}", (write * SPREAD + round) % WRITES);
                let value = format!("{round} {write}").repeat(4);
                put(&db, &mut content, key.as_bytes(), value.as_bytes());
            }
            db.flush().expect("flush");
        }
        wait_for_compact(&db);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_content(&db, &content);
    let stats = service.stats();
    assert_done(&stats);
    assert_jobs_add_up(&stats);
    assert_eq!(stats.verification_failures, 0, "{stats}");
    assert_nothing_staged(directory.path());
}

#[test]
fn outputs_are_no_more_readable_than_inputs() {
    let directory = temporary();
    let path = directory.path().join("db");
    let service = build(Service::builder().min_job_bytes(0));
    let content = fill(&open(&small_files(&service), &path), WRITES, 5);
    let files = |suffix: &str| {
        let entries = path.read_dir().expect("a folder").flatten();
        let files = entries.map(|entry| entry.path());
        let suffix = suffix.to_owned();
        files.filter(move |file| file.to_string_lossy().ends_with(&suffix))
    };
    for file in files(".sst") {
        let private = Permissions::from_mode(0o600);
        std::fs::set_permissions(file, private).expect("it is ours");
    }
    let db = open(&small_files(&service), &path);
    compact_everything(&db);
    assert_done(&service.stats());
    assert_content(&db, &content);
    for file in files(".sst") {
        let mode = file.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn a_database_in_another_env_leaves_one_of_the_same_path_alone() {
    let directory = temporary();
    let path = directory.path().join("db");
    let service = build(Service::builder().min_job_bytes(0));
    let on_disk = fill(&open(&small_files(&service), &path), WRITES, 6);
    let mut options = small_files(&service);
    options.set_env(&Env::mem_env().expect("it needs nothing"));
    let db = open(&options, &path);
    let mut in_memory = fill(&db, WRITES, 7);
    compact_everything(&db);
    assert_declined(&service.stats(), &[MANIFEST]);
    put(&db, &mut in_memory, b"key00000001", b"new");
    compact_everything(&db);
    assert_content(&db, &in_memory);
    drop(db);
    assert_content(&open(&small_files(&service), &path), &on_disk);
}
