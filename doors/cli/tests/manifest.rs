//! Databases whose CURRENT, MANIFEST or OPTIONS are cut or damaged.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{BAD_DATA, DONE, ENVIRONMENT, INCOMPLETE, expect, newest_options, text};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::log::LogReader;
use rust_rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rust_rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType,
    DBPath, Env, IteratorMode, Options, SingleThreaded, TransactionDB, TransactionDBOptions,
    TxnDBWritePolicy,
};

const FAMILIES: [&str; 2] = ["default", "other"];

/// Makes a closed database with three files and two column families, whose MANIFEST has an edit for each step.
fn database(dir: &Path) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open_cf(&options, dir, FAMILIES).expect("open");
    let other = db.cf_handle("other").expect("a family");
    for number in 0..3 {
        db.put(format!("key{number}"), "value").expect("put");
        match number {
            1 => {
                db.put_cf(other, "key", "value").expect("put");
                db.flush_cf(other).expect("flush");
            }
            _ => db.flush().expect("flush"),
        }
    }
    db.put("in the log", "value").expect("put");
}

fn manifest(dir: &Path) -> PathBuf {
    let current = fs::read_to_string(dir.join("CURRENT")).expect("read");
    dir.join(current.trim_end())
}

/// The number of rows that RocksDB finds in the default column family, or its error.
fn by_rocksdb(dir: &Path) -> Result<usize, String> {
    let db = DB::open_for_read_only(&Options::default(), dir, false);
    let db = db.map_err(|error| error.to_string())?;
    let rows = db.iterator(IteratorMode::Start);
    Ok(rows.filter(|row| row.is_ok()).count())
}

/// The commands that read the MANIFEST.
fn commands(dir: &Path) -> Vec<Vec<&str>> {
    let dir = text(dir);
    vec![
        vec![
            "sql",
            dir,
            "select count(*) as n from \"default\"",
            "--format",
            "csv",
        ],
        vec!["view", dir],
        vec!["verify", dir],
        vec!["doctor", dir],
        vec!["compact", dir, "--dry-run"],
        vec!["compact", dir],
        vec!["job", "record", "/nowhere", "--db", dir],
    ]
}

fn assert_refused(dir: &Path, said: &str) {
    for args in commands(dir) {
        let (out, err) = expect(BAD_DATA, &args);
        assert_eq!(out, "", "{args:?}");
        assert!(
            err.contains(text(dir)) && err.contains(said),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn a_cut_manifest_is_refused_where_rocksdb_refuses_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let path = manifest(dir);
    let whole = fs::read(&path).expect("read");
    let mut reader = LogReader::new();
    reader.push(&whole);
    let mut ends = vec![0];
    while let Some(record) = reader.next_record().expect("sound") {
        ends.push(record.end as usize);
    }
    assert_eq!(ends.last(), Some(&whole.len()));
    let (mut lacks, mut opens) = (0, 0);
    for end in ends {
        fs::write(&path, &whole[..end]).expect("write");
        match by_rocksdb(dir) {
            Err(reason) => {
                let found = reason.find("no ").zip(reason.find(" entry in MANIFEST"));
                let (from, to) = found.unwrap_or_else(|| panic!("{end}: {reason}"));
                assert_refused(dir, &reason[from..to]);
                lacks += 1;
            }
            Ok(rows) => {
                let (out, _) = expect(DONE, &commands(dir)[0]);
                assert_eq!(out, format!("n\n{rows}\n"), "{end}");
                expect(DONE, &["verify", text(dir)]);
                opens += 1;
            }
        }
    }
    assert!(lacks >= 2 && opens >= 3, "{lacks} {opens}");
    assert_eq!(by_rocksdb(dir), Ok(4));
}

#[test]
fn zeros_behind_the_edits_are_read_over_as_rocksdb_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let path = manifest(dir);
    let whole = fs::read(&path).expect("read");
    for zeros in [3, 7, 100, 32 << 10, 100_000] {
        fs::write(&path, [&whole[..], &vec![0; zeros]].concat()).expect("write");
        assert_eq!(by_rocksdb(dir), Ok(4), "{zeros} zeros");
        let (out, _) = expect(DONE, &commands(dir)[0]);
        assert_eq!(out, "n\n4\n", "{zeros} zeros");
        expect(DONE, &["verify", text(dir)]);
    }
}

/// Removes the comparators from a MANIFEST of one block.
fn without_comparators(path: &Path, name: &str) {
    const COMPARATOR: u8 = 1;
    const WHOLE_RECORD: u8 = 1;
    let field = [&[COMPARATOR, name.len() as u8], name.as_bytes()].concat();
    let mut reader = LogReader::new();
    reader.push(&fs::read(path).expect("read"));
    let (mut manifest, mut found) = (Vec::new(), 0);
    while let Some(record) = reader.next_record().expect("sound") {
        let mut edit = record.payload;
        let mut windows = edit.windows(field.len());
        if let Some(at) = windows.position(|part| part == field) {
            edit.drain(at..at + field.len());
            found += 1;
        }
        let len = edit.len() as u16;
        let typed = [&[WHOLE_RECORD][..], &edit].concat();
        let (&last, head) = typed.split_last().expect("it has the type");
        let checksum = ChecksumType::Crc32c.compute(head, last);
        manifest.extend_from_slice(&checksum.to_le_bytes());
        manifest.extend_from_slice(&len.to_le_bytes());
        manifest.extend_from_slice(&typed);
    }
    assert_eq!(found, 1);
    fs::write(path, manifest).expect("written");
}

const REVERSE: &str = "rocksdb.ReverseBytewiseComparator";

/// A database of 900 keys in reverse order and several files.
fn reversed(dir: &Path) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_comparator(REVERSE, Box::new(|a, b| b.cmp(a)));
    options.set_target_file_size_base(4096);
    options.set_compression_type(DBCompressionType::None);
    let db = DB::open(&options, dir).expect("open");
    for number in 0..900 {
        db.put(format!("{number:04}"), [7; 40]).expect("put");
    }
    db.flush().expect("flush");
    let mut compact = CompactOptions::default();
    compact.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &compact);
    drop(db);
    assert!(common::sst_files(dir).len() > 3);
}

#[test]
fn verify_and_doctor_take_the_comparator_from_options_where_the_manifest_has_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    reversed(dir);
    let checked = || {
        // In the order of bytes, the files would overlap.
        let (out, said) = expect(DONE, &["verify", text(dir)]);
        assert!(out.contains("all good"), "{out} {said}");
        let (out, said) = expect(DONE, &["doctor", text(dir)]);
        assert!(!out.contains("comparator"), "{out} {said}");
    };
    checked();
    without_comparators(&manifest(dir), REVERSE);
    checked();
}

#[test]
fn a_statement_misses_no_rows_of_files_that_are_in_another_order_than_their_family() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    reversed(dir);
    let count = "select count(*) from \"default\" where key >= '0100' and key < '0500'";
    let (out, _) = expect(DONE, &["sql", text(dir), count]);
    assert!(out.contains("400"), "{out}");
    without_comparators(&manifest(dir), REVERSE);
    let (options, said) = newest_options(dir);
    let line = format!("comparator={REVERSE}");
    assert!(said.contains(&line), "{said}");
    fs::write(
        &options,
        said.replace(&line, "comparator=leveldb.BytewiseComparator"),
    )
    .expect("written");
    // RocksDB itself would seek in the files by the wrong order, and count others.
    let (_, said) = expect(BAD_DATA, &["sql", text(dir), count]);
    assert!(said.contains("its keys are in reverse order"), "{said}");
}

#[test]
fn current_is_refused_where_rocksdb_refuses_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let sound = fs::read_to_string(dir.join("CURRENT")).expect("read");
    let name = sound.trim_end();
    for (text, said) in [
        (name.to_owned(), "CURRENT: it does not end with a newline"),
        (format!("{name}\r\n"), "CURRENT: it names no MANIFEST"),
        (format!("{name}\n\n"), "CURRENT: it names no MANIFEST"),
        ("MANIFEST-\n".to_owned(), "CURRENT: it names no MANIFEST"),
        (String::new(), "CURRENT: it does not end with a newline"),
    ] {
        fs::write(dir.join("CURRENT"), &text).expect("write");
        by_rocksdb(dir).expect_err("RocksDB refuses it");
        assert_refused(dir, said);
    }
    fs::write(dir.join("CURRENT"), &sound).expect("write");
    expect(DONE, &["verify", text(dir)]);
}

#[test]
fn a_cut_options_file_gives_way_to_the_one_before_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let (older, whole) = newest_options(dir);
    drop(DB::open_cf(&Options::default(), dir, FAMILIES).expect("open"));
    let (newer, _) = newest_options(dir);
    assert_ne!(older, newer);
    let [older, name] = [&older, &newer].map(|path| path.file_name().expect("a name"));
    let [older, name] = [older, name].map(|name| name.to_str().expect("text"));
    let half = &whole[..whole.len() / 2 + 1];
    for cut in ["", half.trim_end(), &"\0".repeat(4096)] {
        fs::write(&newer, cut).expect("write");
        let (out, _) = expect(DONE, &commands(dir)[0]);
        assert_eq!(out, "n\n4\n");
        expect(DONE, &["view", text(dir)]);
        let (out, said) = expect(DONE, &["doctor", text(dir)]);
        assert!(out.contains(older), "{out}");
        let counts = format!("{name} is empty or cut, so {older} counts");
        assert!(said.contains(&counts), "{said}");
        // RocksDB would keep the cut file, and remove the other.
        let before = common::snapshot(dir);
        let (_, said) = expect(BAD_DATA, &["compact", text(dir)]);
        assert!(
            said.contains(&format!("{name} is empty or cut: remove it")),
            "{said}"
        );
        assert!(common::snapshot(dir) == before);
    }
    fs::remove_file(&newer).expect("remove");
    expect(DONE, &["compact", text(dir)]);
    assert_eq!(newest_options(dir).0, dir.join(older));
}

#[test]
fn a_malformed_options_file_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let (path, options) = newest_options(dir);
    for (sound, bad) in [
        ("use_direct_reads=false", "use_direct_reads=maybe"),
        (
            "inplace_update_support=false",
            "inplace_update_support=maybe",
        ),
        ("max_open_files=", "max_open_files"),
    ] {
        let changed = options.replacen(sound, bad, 1);
        assert_ne!(changed, options);
        fs::write(&path, changed).expect("write");
        let (_, said) = expect(BAD_DATA, &commands(dir)[0]);
        assert!(said.contains(text(&path)), "{said}");
    }
}

#[test]
fn a_decimal_comma_in_options_is_a_point() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    database(dir);
    let (path, options) = newest_options(dir);
    let commas = options
        .replace(".000000", ",000000")
        .replace(".250000", ",250000");
    assert!(
        commas.contains("max_bytes_for_level_multiplier=10,000000"),
        "{commas}"
    );
    fs::write(&path, commas).expect("write");
    expect(DONE, &["doctor", text(dir)]);
    expect(DONE, &["compact", text(dir)]);
}

#[test]
fn a_file_in_another_directory_of_db_paths_is_not_missing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let paths = [(&first, 1), (&second, 1 << 40)];
    let paths = paths.map(|(path, size)| DBPath::new(path, size).expect("a path"));
    options.set_db_paths(&paths);
    let opened = DB::open(&options, &db).expect("open");
    for value in ["one", "two"] {
        opened.put("key", value).expect("put");
        opened.flush().expect("flush");
    }
    let mut compaction = CompactOptions::default();
    compaction.set_target_path_id(1);
    compaction.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    opened.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &compaction);
    opened.put("key", "three").expect("put");
    opened.flush().expect("flush");
    drop(opened);
    let files = [&first, &second].map(|path| common::sst_files(path).len());
    assert!(files[0] > 0 && files[1] > 0, "{files:?}");
    let (out, said) = expect(INCOMPLETE, &["verify", text(&db)]);
    assert!(
        out.contains("not checked in 1 file") && said.contains("of 2 files could not be checked"),
        "{out} {said}"
    );
    let (out, _) = expect(BAD_DATA, &["doctor", text(&db)]);
    assert!(out.contains("db-paths"), "{out}");
    let (_, said) = expect(BAD_DATA, &["sql", text(&db), "select * from \"default\""]);
    assert!(said.contains("db_paths"), "{said}");
    let (out, _) = expect(DONE, &["view", text(&db), "--json"]);
    assert!(out.contains("db_paths"), "{out}");
}

/// Makes a database with ranges that are deleted, and a column family with blobs.
fn database_for_a_backup(dir: &Path, value: &str) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(100);
    let families = [
        ColumnFamilyDescriptor::new("default", Options::default()),
        ColumnFamilyDescriptor::new("blobs", options.clone()),
    ];
    let db = DB::open_cf_descriptors(&options, dir, families).expect("open");
    let blobs = db.cf_handle("blobs").expect("a family");
    for number in 0..9 {
        db.put(format!("key{number}"), value).expect("put");
        db.put_cf(blobs, format!("key{number}"), value.repeat(100))
            .expect("put");
    }
    let default = db.cf_handle("default").expect("a family");
    db.delete_range_cf(default, "key2", "key4").expect("delete");
    db.flush().expect("flush");
    db.flush_cf(blobs).expect("flush");
    db.put("in the log", value).expect("put");
    db
}

#[test]
fn a_backup_is_read_with_the_files_that_it_shares_with_others() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, backups) = (dir.path().join("db"), dir.path().join("backups"));
    let settings = BackupEngineOptions::new(&backups).expect("options");
    let env = Env::new().expect("an environment");
    let mut engine = BackupEngine::open(&settings, &env).expect("open");
    // The second database has files of the same numbers.
    for value in ["a", "b"] {
        let db = database_for_a_backup(&path, value);
        engine
            .create_new_backup_flush(&db, false)
            .expect("a backup");
        drop(db);
        fs::remove_dir_all(&path).expect("removed");
    }
    let shared = fs::read_dir(backups.join("shared_checksum")).expect("it is there");
    let shared = shared.map(|entry| entry.expect("a name").file_name());
    let shared: Vec<_> = shared
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let number = |name: &str| name.split('_').next().map(str::to_owned);
    let tables = shared.iter().filter(|name| name.ends_with(".sst"));
    let numbers: BTreeSet<_> = tables.clone().map(|name| number(name)).collect();
    assert_eq!((numbers.len(), tables.count()), (2, 4), "{shared:?}");
    assert!(shared.iter().any(|name| name.ends_with(".blob")));
    let restore = RestoreOptions::default();
    for (id, value) in [(1, "a"), (2, "b")] {
        let restored = dir.path().join(format!("restored{id}"));
        let restoring = engine.restore_from_backup(&restored, &restored, &restore, id);
        restoring.expect("restored");
        let backup = backups.join(format!("private/{id}"));
        for (family, rows) in [("default", 8), ("blobs", 9)] {
            let counted = format!(
                "select count(*) as n, min(substr(cast(value as varchar), 1, 1)) as low, \
                 max(substr(cast(value as varchar), 1, 1)) as high from \"{family}\""
            );
            for dir in [&restored, &backup] {
                let args = ["sql", text(dir), &counted, "--format", "csv"];
                let (out, _) = expect(DONE, &args);
                assert_eq!(
                    out,
                    format!("n,low,high\n{rows},{value},{value}\n"),
                    "{args:?}"
                );
            }
        }
        expect(DONE, &["verify", text(&backup)]);
        for args in [["view", "--json"], ["doctor", "--json"]] {
            let said = |dir: &Path| {
                let args = [args[0], text(dir), args[1]];
                let (code, out) = match args[0] {
                    "view" => (DONE, expect(DONE, &args).0),
                    _ => (BAD_DATA, expect(BAD_DATA, &args).0),
                };
                // Reasons against jobs name the shared files by their names there.
                let out = shared.iter().fold(out, |out, name| {
                    let in_database = number(name).map(|number| format!("{number}.sst"));
                    out.replace(name, &in_database.unwrap_or_default())
                });
                (code, out.replace(text(dir), "DIR"))
            };
            let found = said(&backup);
            assert_eq!(found, said(&restored), "{args:?}");
            assert!(!found.1.contains("No such file"), "{}", found.1);
        }
        for args in [
            vec!["compact", text(&backup), "--dry-run"],
            vec!["compact", text(&backup)],
            vec!["job", "record", "/nowhere", "--db", text(&backup)],
        ] {
            let (_, said) = expect(ENVIRONMENT, &args);
            assert!(
                said.contains(text(&backup)) && said.contains("restore it"),
                "{said}"
            );
        }
    }
    // Its path alone does not make a folder a backup.
    let restored = dir.path().join("private/1");
    fs::create_dir_all(&restored).expect("make");
    engine
        .restore_from_latest_backup(&restored, &restored, &restore)
        .expect("restored");
    expect(DONE, &["verify", text(&restored)]);
}

#[test]
fn a_log_of_transactions_that_are_written_before_they_are_committed_is_refused_as_by_rocksdb() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    let mut of_transactions = TransactionDBOptions::default();
    of_transactions.set_write_policy(TxnDBWritePolicy::WritePrepared);
    let open =
        || TransactionDB::<SingleThreaded>::open(&options, &of_transactions, dir).expect("open");
    let db = open();
    let transaction = db.transaction();
    transaction.put("key", "value").expect("put");
    transaction.set_name(b"name").expect("named");
    transaction.prepare().expect("prepared");
    transaction.commit().expect("committed");
    drop(db);
    let refused = by_rocksdb(dir).expect_err("RocksDB refuses it");
    assert!(refused.contains("WAL must be emptied"), "{refused}");
    let (_, said) = expect(BAD_DATA, &commands(dir)[0]);
    assert!(said.contains("not supported: two-phase records"), "{said}");
    // A flush of nothing leaves that log to the next recovery. RocksDB passes it over without `allow_2pc`, and so returns
    // entries of transactions that were prepared alone, which a recovery has flushed.
    let db = open();
    db.flush().expect("flush");
    drop(db);
    expect(BAD_DATA, &commands(dir)[0]);
    let db = open();
    db.put("key", "value").expect("put");
    db.flush().expect("flush");
    drop(db);
    drop(open());
    let (out, _) = expect(DONE, &commands(dir)[0]);
    assert_eq!(out, "n\n1\n");
}
