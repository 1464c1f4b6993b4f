//! Bad bytes, missing files, full disks: the job is returned to RocksDB, readable data is kept, the staging folder is
//! empty, and the last error names the place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_compaction::{Engine, Settings};
use rockmill_storage::LocalStorage;
use rockmill_testkit::machine::{Mount, again_where_mounting_is_allowed};
use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::damage::{Region, overwrite, replace, sst_files, with_flipped_bit};
use rockmill_tests::harness::{
    STAGING, assert_declined, assert_done, assert_jobs_add_up, assert_nothing_staged,
    compact_everything, fill, local_options, open, options, put, service,
};
use rockmill_tests::reasons::INPUT_MISSING;
use rockmill_tests::table::{Filter, TableShape};
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::{DB, Options, WriteBatch};

/// Number of writes of a small database: each of its four files has tens of data blocks.
const WRITES: usize = 6_000;

/// A database with four L0 files, reopened so that no data block is in RocksDB's cache.
struct Fixture {
    directory: tempfile::TempDir,
    service: rockmill::Service,
    content: Content,
}

fn shaped(options: Options) -> Options {
    let table = TableShape {
        filter: Filter::Bloom(10.0),
        ..TableShape::default()
    };
    let mut options = table.apply(options);
    // Several output files per job: some are finished before the bad block in the middle is read.
    let tree = TreeShape {
        target_file_size: 32 << 10,
        ..TreeShape::default()
    };
    tree.apply(&mut options);
    options
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("db");
        let content = fill(&open(&shaped(local_options()), &path), WRITES, 1);
        Self {
            directory,
            service: service(),
            content,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    fn open(&self) -> DB {
        open(&shaped(options(&self.service)), &self.path())
    }

    /// Checks that the job was returned and that the error names `file`. If a file cannot be opened, the engine may
    /// count the job as declined or as failed.
    fn assert_came_back(&self, file: &Path) {
        let stats = self.service.stats();
        assert!(stats.jobs_failed + stats.jobs_declined > 0, "{stats}");
        assert_eq!(stats.jobs_done, 0, "{stats}");
        assert_jobs_add_up(&stats);
        if stats.jobs_failed > 0 {
            assert_names(&stats, file);
        }
        assert_nothing_staged(&self.path());
    }

    /// Replaces the middle one of the files with a damaged copy, so that RocksDB can still compact.
    fn damage(&self, db: &DB, change: impl Fn(&[u8]) -> Vec<u8>) -> PathBuf {
        let file = sst_files(db).swap_remove(1);
        let bytes = fs::read(&file).expect("read");
        replace(&file, &change(&bytes)).expect("replace");
        file
    }
}

fn assert_names(stats: &rockmill::Stats, file: &Path) {
    let name = file
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    let error = stats.last_error.as_deref().unwrap_or_default();
    assert!(
        error.contains(&name),
        "the last error does not name {name}: {stats}"
    );
}

/// Checks that the last error names the file and an offset in it.
fn assert_names_with_offset(stats: &rockmill::Stats, file: &Path) {
    assert_names(stats, file);
    let error = stats.last_error.as_deref().unwrap_or_default();
    let digits = error.split_once("(at offset ").map(|(_, rest)| rest);
    assert!(
        digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())),
        "no offset: {stats}"
    );
}

/// Returns the findings of `rockmill doctor` with a memory budget, about all column families.
fn diagnosed(dir: &Path, memory_budget_bytes: u64) -> Vec<String> {
    let mut settings = Settings::default();
    settings.mutable.memory_budget_bytes = memory_budget_bytes;
    let engine = Engine::new(settings, Arc::new(LocalStorage)).expect("sound settings");
    let families = engine.diagnose(dir).expect("a database").families;
    let found = families.iter().flat_map(|family| &family.found);
    found.map(ToString::to_string).collect()
}

#[test]
fn a_file_with_more_range_tombstones_than_memory_is_named_and_left_to_rocksdb() {
    const TOMBSTONES: u32 = 150_000;
    const BUDGET_BYTES: u64 = 32 << 20;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("db");
    let db = open(&local_options(), &path);
    let mut batch = WriteBatch::default();
    for number in 0..TOMBSTONES {
        let [begin, end] = [2 * number, 2 * number + 1].map(u32::to_be_bytes);
        batch.delete_range(begin, end);
    }
    db.write(&batch).expect("written");
    db.flush().expect("flushed");
    drop(db);
    assert_eq!(diagnosed(&path, 1 << 30), [""; 0]);
    let found = diagnosed(&path, BUDGET_BYTES);
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    let limit = format!("more than {} bytes of range tombstones", BUDGET_BYTES / 4);
    let is_named = one.starts_with("declined (memory-budget): 0") && one.contains(".sst");
    assert!(is_named && one.contains(&limit), "{one}");
}

#[test]
fn a_flipped_bit_in_any_region() {
    for region in Region::ALL {
        let fixture = Fixture::new();
        let db = fixture.open();
        let file = fixture.damage(&db, |bytes| with_flipped_bit(bytes, region.offset(bytes)));
        compact_everything(&db);
        if region.is_read_by_compactions() {
            fixture.assert_came_back(&file);
            let stats = fixture.service.stats();
            assert_eq!(
                stats.jobs_declined, 0,
                "{region:?}: damage is no reason to decline: {stats}"
            );
            assert_names_with_offset(&stats, &file);
        }
        assert_content(&db, &fixture.content);
        assert_nothing_staged(&fixture.path());
    }
}

#[test]
fn many_flipped_bits_one_at_a_time() {
    const STRIDE: usize = 7_919;
    let bytes = {
        let fixture = Fixture::new();
        fs::read(&sst_files(&fixture.open())[1]).expect("read")
    };
    for offset in (0..bytes.len()).step_by(STRIDE) {
        let fixture = Fixture::new();
        let db = fixture.open();
        fixture.damage(&db, |bytes| {
            with_flipped_bit(bytes, offset.min(bytes.len() - 1))
        });
        compact_everything(&db);
        assert_content(&db, &fixture.content);
        assert_nothing_staged(&fixture.path());
    }
}

#[test]
fn truncated_files() {
    let cuts: [fn(usize) -> usize; 5] = [|_| 0, |_| 1, |n| n / 2, |n| n - 53, |n| n - 1];
    for cut in cuts {
        let fixture = Fixture::new();
        let db = fixture.open();
        let file = fixture.damage(&db, |bytes| bytes[..cut(bytes.len())].to_vec());
        compact_everything(&db);
        fixture.assert_came_back(&file);
        assert_content(&db, &fixture.content);
    }
}

#[test]
fn a_file_with_bytes_behind_its_footer() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let file = fixture.damage(&db, |bytes| [bytes, &[0; 100]].concat());
    compact_everything(&db);
    fixture.assert_came_back(&file);
    assert_content(&db, &fixture.content);
}

#[test]
fn foreign_files() {
    let foreign: [&[u8]; 3] = [b"#!/bin/sh\nexit 1\n", &[0; 4096], &[0xff; 4096]];
    for bytes in foreign {
        let fixture = Fixture::new();
        let db = fixture.open();
        let file = fixture.damage(&db, |_| bytes.to_vec());
        compact_everything(&db);
        fixture.assert_came_back(&file);
        assert_content(&db, &fixture.content);
    }
}

#[test]
fn a_sound_file_of_another_database() {
    // All its checksums are valid; only its unique id and its place show that it is not the input.
    let other = Fixture::new();
    let other_file = sst_files(&other.open()).swap_remove(1);
    let bytes = fs::read(other_file).expect("read");
    let fixture = Fixture::new();
    let db = fixture.open();
    let mut content = fixture.content.clone();
    put(&db, &mut content, b"one more", b"value");
    db.flush().expect("flush");
    let file = fixture.damage(&db, |_| bytes.clone());
    compact_everything(&db);
    fixture.assert_came_back(&file);
    assert_content(&db, &content);
}

#[test]
fn a_sound_file_of_the_same_database() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let third = fs::read(&sst_files(&db)[2]).expect("read");
    let file = fixture.damage(&db, |_| third.clone());
    compact_everything(&db);
    fixture.assert_came_back(&file);
    assert_content(&db, &fixture.content);
}

#[test]
fn a_missing_file() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let file = sst_files(&db).swap_remove(1);
    fs::remove_file(&file).expect("remove");
    compact_everything(&db);
    fixture.assert_came_back(&file);
    let stats = fixture.service.stats();
    assert_declined(&stats, &[INPUT_MISSING]);
    assert_names(&stats, &file);
    assert_content(&db, &fixture.content);
}

#[test]
fn a_file_without_permission_to_read() {
    // The superuser can read every file.
    if rockmill_testkit::machine::is_superuser() {
        return rockmill_testkit::machine::again_as_nobody("a_file_without_permission_to_read");
    }
    let fixture = Fixture::new();
    // RocksDB has opened the file before and keeps it open.
    let db = fixture.open();
    let file = sst_files(&db).swap_remove(1);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).expect("chmod");
    compact_everything(&db);
    fixture.assert_came_back(&file);
    assert_names(&fixture.service.stats(), &file);
    assert_content(&db, &fixture.content);
}

#[test]
fn a_file_that_cannot_be_read() {
    // A directory can be opened, but not read, even by root.
    let fixture = Fixture::new();
    let db = fixture.open();
    let file = sst_files(&db).swap_remove(1);
    fs::rename(&file, file.with_extension("away")).expect("move away");
    fs::create_dir(&file).expect("make a directory");
    compact_everything(&db);
    fixture.assert_came_back(&file);
    fs::remove_dir(&file).expect("remove the directory");
    assert_content(&db, &fixture.content);
}

#[test]
fn damage_that_rocksdb_sees_too() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let files = sst_files(&db);
    let bytes = fs::read(&files[1]).expect("read");
    let offset = Region::MiddleDataBlock.offset(&bytes);
    overwrite(&files[1], &with_flipped_bit(&bytes, offset)).expect("overwrite");
    compact_everything(&db);
    let stats = fixture.service.stats();
    assert_eq!(stats.jobs_done, 0, "{stats}");
    assert!(stats.jobs_failed > 0, "{stats}");
    assert_names_with_offset(&stats, &files[1]);
    assert_nothing_staged(&fixture.path());
    assert_eq!(
        sst_files(&db),
        files,
        "no input may go while one is damaged"
    );
    assert_answers_are_right_or_errors(&db, &fixture.content);
    drop(db);
    // After reopening, one block is still bad, and everything else is readable.
    let db = open(&shaped(local_options()), &fixture.path());
    assert_answers_are_right_or_errors(&db, &fixture.content);
    drop(db);
    // With the bit restored, nothing has been lost.
    fs::write(&files[1], &bytes).expect("write");
    assert_content(
        &open(&shaped(local_options()), &fixture.path()),
        &fixture.content,
    );
}

/// Checks that every lookup returns the right value or an error, and most return the value.
fn assert_answers_are_right_or_errors(db: &DB, content: &Content) {
    let mut errors = 0;
    for (key, value) in content {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{}", key.escape_ascii()),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 0, "the damaged block holds a live key");
    assert!(
        errors < content.len() / 2,
        "{errors} of {} keys are unreadable",
        content.len()
    );
}

#[test]
fn a_staging_folder_that_cannot_be_made() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let staging = fixture.path().join(STAGING);
    let _ = fs::remove_dir_all(&staging);
    fs::write(&staging, b"a file in its place").expect("write");
    compact_everything(&db);
    let stats = fixture.service.stats();
    assert_eq!(stats.jobs_done, 0, "{stats}");
    assert!(stats.jobs_failed + stats.jobs_declined > 0, "{stats}");
    assert_content(&db, &fixture.content);
    assert_eq!(
        fs::read(&staging).expect("still there"),
        b"a file in its place"
    );
}

#[test]
fn leftovers_of_a_crash_do_not_disturb() {
    let fixture = Fixture::new();
    let staging = fixture.path().join(STAGING).join("00000000000000000000");
    fs::create_dir_all(&staging).expect("make a directory");
    fs::write(staging.join("000011.sst"), b"half a file").expect("write");
    let db = fixture.open();
    compact_everything(&db);
    assert_done(&fixture.service.stats());
    assert_content(&db, &fixture.content);
    assert!(!staging.exists(), "the leftovers are still there");
    assert_nothing_staged(&fixture.path());
}

/// Size in bytes of one write to the filler file.
const FILLER_BYTES: usize = 4 << 10;

/// Fills the disk until about `spare_bytes` are left.
fn fill_disk(filler: &Path, spare_bytes: u64) {
    use std::io::Write;
    let mut file = fs::File::create(filler).expect("create");
    let mut written = 0;
    while file.write_all(&[0; FILLER_BYTES]).is_ok() {
        written += FILLER_BYTES as u64;
    }
    file.set_len(written.saturating_sub(spare_bytes))
        .expect("truncate");
}

#[test]
fn a_full_disk() {
    const SPARE_BYTES: u64 = 96 << 10;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = Mount::memory("8m", directory.path().join("disk")) else {
        return again_where_mounting_is_allowed("a_full_disk");
    };
    let path = disk.path().join("db");
    let service = service();
    let mut options = shaped(options(&service));
    options.set_max_bgerror_resume_count(0);
    let db = open(&options, &path);
    let content = fill(&db, WRITES, 1);
    let filler = disk.path().join("filler");
    fill_disk(&filler, SPARE_BYTES);
    compact_everything(&db);
    let stats = service.stats();
    assert_eq!(stats.jobs_done, 0, "{stats}");
    assert!(stats.jobs_failed > 0, "{stats}");
    assert!(stats.last_error.is_some(), "{stats}");
    assert_nothing_staged(&path);
    assert_content(&db, &content);
    drop(db);
    // With free space, everything works. This is another service, because a service leaves jobs to RocksDB for a while
    // after one of its databases has closed.
    fs::remove_file(&filler).expect("remove");
    let service = rockmill_tests::harness::service();
    options.set_compaction_service(service.clone());
    let db = open(&options, &path);
    assert_content(&db, &content);
    compact_everything(&db);
    assert_content(&db, &content);
    assert_done(&service.stats());
    assert_nothing_staged(&path);
}
