//! `compact` and `doctor` as a user calls them: their effects on a database, and their refusals.

mod common;

use std::fs;
use std::path::Path;

use common::{
    BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, contents, expect, json, made, newest_options,
    reasons, snapshot, sst_files, text,
};
use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::{
    CompactionOptions, DB, DBCompactionStyle, DBCompressionType, MergeOperands, Options,
    UniversalCompactOptions,
};
use serde_json::Value;

/// Joins operands like RocksDB's own operator of that name.
fn append(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let all: Vec<&[u8]> = existing.into_iter().chain(operands).collect();
    Some(all.join(&b","[..]))
}

/// Opens a database with a column family of merge operands and an empty default family.
fn with_counters(dir: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let mut counters = Options::default();
    counters.set_merge_operator_associative("StringAppendOperator", append);
    counters.set_disable_auto_compactions(true);
    let families = [("default", Options::default()), ("counters", counters)];
    let db = DB::open_cf_with_opts(&options, dir, families).expect("open");
    for run in ["1", "2"] {
        db.put(run, run).expect("put");
        let counters = db.cf_handle("counters").expect("a column family");
        db.merge_cf(counters, "key", run).expect("merge");
        db.flush_cf(counters).expect("flush");
        db.flush().expect("flush");
    }
    db
}

#[test]
fn a_compacted_database_has_the_same_entries_in_its_last_level() {
    let (_dir, db) = made();
    let before = contents(&db);
    let report = json(DONE, &["compact", text(&db), "--threads", "2"]);
    let stats = &report["stats"];
    assert!(stats["jobs_done"].as_u64() > Some(0), "{report}");
    assert_eq!(stats["jobs_done"], stats["jobs_offered"]);
    assert_eq!(stats["job_seconds"]["count"], stats["jobs_done"]);
    assert_eq!(report["returned"], Value::Array(Vec::new()));
    assert!(stats["read_bytes"].as_u64() > stats["written_bytes"].as_u64());
    assert_eq!(stats["bytes_begun"], stats["bytes_passed"]);
    assert!(report["gb_per_s"].as_f64() > Some(0.0));
    // The process's CPU time includes the jobs' threads.
    let of_process = report["cpu_s"].as_f64().expect("a number");
    let of_jobs = stats["job_cpu_seconds"]["sum_s"]
        .as_f64()
        .expect("a number");
    assert!(0.0 < of_jobs && of_jobs <= of_process, "{report}");
    let levels = report["column_families"][0]["levels"]
        .as_array()
        .expect("levels");
    let of = |level: &Value, field: &str| (level["level"].as_u64(), level[field].as_u64());
    assert_eq!(of(&levels[0], "files_before"), (Some(0), Some(4)));
    assert_eq!(of(&levels[0], "files_after"), (Some(0), Some(0)));
    assert!(contents(&db) == before);
    // An OPTIONS file from a binding does not contain the filters' bits per key.
    let rows = json(DONE, &["verify", text(&db)]);
    for row in rows.as_array().expect("rows") {
        assert_eq!(row["level"], 6);
        let filter = row["filter"].as_str().expect("a filter");
        assert!(filter.starts_with("Bloom"), "{row}");
    }
    let files = sst_files(&db);
    let (out, _) = expect(DONE, &["compact", text(&db)]);
    let already = "column family default is compacted already; --force compacts it again\n";
    assert_eq!((out.as_str(), sst_files(&db)), (already, files));
    let again = ["compact", text(&db), "--force"];
    let (table, _) = expect(DONE, &again);
    assert_eq!(table.lines().count(), 1, "{table}");
    let [figures, by] = table.split(" s, ").collect::<Vec<_>>()[..] else {
        panic!("{table}");
    };
    assert!(figures.contains(" MB in "), "{table}");
    assert_eq!(by, "done by Rockmill\n");
    let (stats, _) = expect(DONE, &[&again[..], &["--stats"]].concat());
    assert!(stats.contains("Rockmill on cpu"), "{stats}");
    assert!(stats.ends_with("done by Rockmill\n"), "{stats}");
    for line in stats.lines() {
        assert!(line.len() <= 80 && !line.contains("0 declined"), "{line}");
    }
    assert!(contents(&db) == before);
    let file = sst_files(&db).remove(0);
    let bytes = fs::read(&file).expect("read");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("written");
    let (_, error) = expect(BAD_DATA, &["compact", text(&db)]);
    assert!(error.contains(text(&file)), "{error}");
}

#[test]
fn families_that_another_ones_compaction_flushes_are_compacted() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = dir.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_atomic_flush(true);
    options.set_avoid_flush_during_shutdown(true);
    options.set_avoid_flush_during_recovery(true);
    {
        let open = DB::open_cf(&options, &db, ["default", "other"]).expect("open");
        let other = open.cf_handle("other").expect("a column family");
        for key in 0..1000_u32 {
            open.put(key.to_be_bytes(), "value").expect("put");
            open.put_cf(other, key.to_be_bytes(), "value").expect("put");
        }
    }
    let report = json(DONE, &["compact", text(&db)]);
    let families = report["column_families"].as_array().expect("families");
    assert_eq!(families.len(), 2, "{report}");
    for family in families {
        let levels = family["levels"].as_array().expect("levels");
        let last = levels.last().expect("a level");
        assert!(last["level"] == 6 && last["files_after"] == 1, "{family}");
    }
}

#[test]
fn a_range_is_compacted_and_the_other_files_stay() {
    let (_dir, db) = made();
    expect(DONE, &["compact", text(&db)]);
    let before = contents(&db);
    let files = sst_files(&db);
    let plan = json(
        DONE,
        &["compact", text(&db), "--from", "key015000", "--dry-run"],
    );
    let plan = &plan["column_families"][0];
    assert_eq!(plan["compacted_already"], true);
    let range = [
        "--from",
        "key015000",
        "--to",
        "0x6b65793031353130",
        "--force",
    ];
    let report = json(DONE, &[&["compact", text(&db)], &range[..]].concat());
    assert!(report["stats"]["jobs_done"].as_u64() > Some(0), "{report}");
    let stayed = sst_files(&db).iter().filter(|f| files.contains(f)).count();
    assert!(0 < stayed && stayed < files.len(), "{stayed}");
    assert!(plan["files"].as_u64() < Some(files.len() as u64), "{plan}");
    assert!(contents(&db) == before);
    let beyond = ["compact", text(&db), "--from", "z", "--to", "zz"];
    let nothing = json(DONE, &beyond);
    assert_eq!(nothing["stats"]["jobs_offered"], 0);
    for more in [&["--dry-run"][..], &[]] {
        let (out, _) = expect(DONE, &[&beyond[..], more].concat());
        assert!(out.contains("nothing to compact"), "{out}");
    }
}

/// Makes a closed database with keys in reverse order by a comparator with this name: files of `a`, `m` and `z`.
fn in_reverse(db: &Path, comparator: &'static str) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_comparator(comparator, Box::new(|a: &[u8], b: &[u8]| b.cmp(a)));
    let open = DB::open(&options, db).expect("open");
    for letter in ["a", "m", "z"] {
        for run in 0..2 {
            for n in 0..100 {
                let (key, value) = (format!("{letter}{n:03}"), format!("{run}"));
                open.put(key, value).expect("put");
            }
            open.flush().expect("flush");
        }
        open.compact_range(None::<&str>, None::<&str>);
    }
    options
}

#[test]
fn a_range_of_keys_is_in_the_order_of_bytes_if_they_are_in_reverse_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    let options = in_reverse(&db, "rocksdb.ReverseBytewiseComparator");
    let read = || -> Vec<_> {
        let open = DB::open_for_read_only(&options, &db, false).expect("open");
        open.iterator(rust_rocksdb::IteratorMode::Start)
            .map(|pair| pair.expect("sound"))
            .collect()
    };
    let before = read();
    assert_eq!(before.len(), 300);
    assert!(before.windows(2).all(|pair| pair[0].0 > pair[1].0));
    assert_eq!(sst_files(&db).len(), 3);
    expect(DONE, &["doctor", text(&db)]);
    for (from, to, touched) in [
        ("m", "n", 1),
        ("b", "l", 0),
        ("m050", "z", 1),
        ("a099", "zz", 3),
    ] {
        let range = ["--from", from, "--to", to, "--force"];
        let plan = [&["compact", text(&db), "--dry-run"], &range[..]].concat();
        let plan = json(DONE, &plan);
        let before = sst_files(&db);
        let report = json(DONE, &[&["compact", text(&db)], &range[..]].concat());
        let stayed = sst_files(&db).iter().filter(|f| before.contains(f)).count();
        assert_eq!(before.len() - stayed, touched, "{from} {to} {report}");
        let (done, foretold) = (
            report["stats"]["jobs_done"].as_u64() > Some(0),
            plan["column_families"][0]["steps"][0]["accepted"] == true,
        );
        assert_eq!((done, foretold), (touched > 0, touched > 0), "{plan}");
    }
    assert!(read() == before);
}

#[test]
fn the_order_of_a_comparator_is_stated_to_the_doctor() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    in_reverse(&db, "newest-first");
    let report = json(BAD_DATA, &["doctor", text(&db)]);
    let declines = &report["column_families"][0]["declines"];
    assert_eq!(reasons(declines), ["comparator"]);
    let stated = ["doctor", text(&db), "--comparator", "newest-first=reverse"];
    expect(DONE, &stated);
    let wrong = ["doctor", text(&db), "--comparator", "newest-first"];
    let (_, err) = expect(WRONG_USAGE, &wrong);
    assert!(
        err.contains("--comparator") && err.contains("NAME=reverse"),
        "{err}"
    );
}

#[test]
fn a_dry_run_says_what_would_be_done_and_changes_nothing() {
    let (_dir, db) = made();
    let before = snapshot(&db);
    let dry_run = ["compact", text(&db), "--dry-run", "--threads", "2"];
    let plan = json(DONE, &dry_run);
    let plan = &plan["column_families"][0];
    let step = &plan["steps"][0];
    assert_eq!(
        (&plan["accepted"], &step["declines"]),
        (&true.into(), &Value::Array(Vec::new()))
    );
    assert_eq!(
        (&step["jobs"], &step["output_level"]),
        (&1.into(), &6.into())
    );
    assert_eq!(plan["steps"][1], Value::Null);
    assert_eq!(plan["files"], 4);
    let sizes = sst_files(&db)
        .into_iter()
        .map(|file| fs::metadata(file).expect("a file").len());
    assert_eq!(plan["bytes"], sizes.sum::<u64>());
    assert_eq!(step["inputs"][0]["level"], 0);
    let work = &step["work"];
    assert!(work["subcompactions"].as_u64() > Some(3), "{work}");
    assert!(work["output_files"].as_u64() >= work["subcompactions"].as_u64());
    assert_eq!(work["subcompactions_at_once"], 2);
    assert_eq!(work["filter_bits_per_key"], 10.0);
    let (out, _) = expect(DONE, &dry_run);
    assert!(out.contains("Rockmill on cpu"), "{out}");
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    expect(DONE, &["doctor", text(&db)]);
    assert!(snapshot(&db) == before);
}

#[test]
fn a_dry_run_foretells_the_jobs_from_level_to_level() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_level_compaction_dynamic_level_bytes(false);
    let db = DB::open(&options, dir.path()).expect("open");
    let write = |value: &str| {
        for number in 0..1000 {
            db.put(format!("key{number:04}"), value).expect("put");
        }
        db.flush().expect("flush");
    };
    for level in [3, 2] {
        write("old");
        let files = db.live_files().expect("files").into_iter();
        let new = files.filter(|file| file.level == 0).map(|file| file.name);
        let new: Vec<_> = new.collect();
        let down = CompactionOptions::default();
        db.compact_files(&down, &new, level).expect("compact");
    }
    write("new");
    drop(db);
    let plan = json(DONE, &["compact", text(dir.path()), "--dry-run"]);
    let report = json(DONE, &["compact", text(dir.path())]);
    let plan = &plan["column_families"][0];
    let steps = plan["steps"].as_array().expect("steps");
    // The new file is moved to level 1 without a job.
    let outputs: Vec<_> = steps.iter().map(|step| &step["output_level"]).collect();
    assert_eq!(outputs, [2, 3], "{plan}");
    let first = steps[0]["inputs"].as_array().expect("inputs").iter();
    let first = first.map(|input| input["bytes"].as_u64());
    assert_eq!(steps[1]["earlier_bytes"].as_u64(), first.sum(), "{plan}");
    let jobs = steps.iter().map(|step| step["jobs"].as_u64());
    let jobs = jobs.sum::<Option<u64>>();
    assert_eq!(report["stats"]["jobs_done"].as_u64(), jobs, "{plan}");
    assert_eq!(report["stats"]["jobs_offered"].as_u64(), jobs, "{plan}");
}

#[test]
fn what_was_not_asked_for_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    let families = ["default", "other"];
    let with = families.map(|family| (family, options.clone()));
    let db = DB::open_cf_with_opts(&options, dir.path(), with).expect("open");
    for run in 0..8 {
        for name in families {
            let family = db.cf_handle(name).expect("a column family");
            db.put_cf(family, "key", format!("{name} {run}"))
                .expect("put");
            if run < 7 {
                db.flush_cf(family).expect("flush");
            }
        }
    }
    drop(db);
    // Like the file of an application that was closed before its compactions.
    let (path, options) = newest_options(dir.path());
    let options = options.replace(
        "disable_auto_compactions=true",
        "disable_auto_compactions=false",
    );
    fs::write(&path, &options).expect("write");
    let levels = |report: &Value| {
        let rows = report.as_array().expect("rows").clone().into_iter();
        let other = rows.filter(|row| row["column_family"] == "other");
        other.map(|row| row["file"].clone()).collect::<Vec<_>>()
    };
    let verify = ["verify", text(dir.path())];
    let before = levels(&json(DONE, &verify));
    let compact = ["compact", text(dir.path()), "--column-family", "default"];
    let report = json(DONE, &compact);
    let levels_of = &report["column_families"][0]["levels"];
    assert_eq!(levels_of[0]["files_before"], 7, "{report}");
    assert_eq!(levels_of[0]["files_after"], 0, "{report}");
    assert_eq!(report["other_column_families"], Value::Array(Vec::new()));
    assert_eq!((levels(&json(DONE, &verify)), before.len()), (before, 7));
    assert_eq!(newest_options(dir.path()), (path, options));
    let db = DB::open_cf_for_read_only(&Options::default(), dir.path(), families, false);
    let db = db.expect("open");
    for name in families {
        let family = db.cf_handle(name).expect("a column family");
        let value = db.get_cf(family, "key").expect("sound").expect("a value");
        assert_eq!(value, format!("{name} 7").as_bytes());
    }
}

#[test]
fn an_open_database_is_refused_and_can_be_looked_at() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = with_counters(dir.path());
    let before = snapshot(dir.path());
    let compact = ["compact", text(dir.path()), "--family", "default"];
    let (_, err) = expect(ENVIRONMENT, &compact);
    assert!(
        err.contains("another process has the database open"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    let plan = json(ENVIRONMENT, &[&compact[..], &["--dry-run"]].concat());
    assert_eq!(plan["column_families"][0]["files"], 2);
    let refused = plan["refusals"][0]["what"].as_str().expect("a reason");
    assert!(err.contains(refused), "{err} {plan}");
    expect(BAD_DATA, &["doctor", text(dir.path())]);
    assert!(snapshot(dir.path()) == before);
    let record = ["job", "record", text(dir.path()), "--db", text(dir.path())];
    let (_, err) = expect(ENVIRONMENT, &record);
    assert!(
        err.contains("another process has the database open"),
        "{err}"
    );
    assert!(snapshot(dir.path()) == before);
    drop(open);
    expect(DONE, &compact);
}

#[test]
fn what_rockmill_declines_rocksdb_does_and_the_report_says_why() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(1);
    let db = DB::open(&options, dir.path()).expect("open");
    for value in ["1", "2"] {
        db.put("key", value).expect("put");
        db.flush().expect("flush");
    }
    drop(db);
    // The files alone refer to blobs.
    options.set_enable_blob_files(false);
    drop(DB::open(&options, dir.path()).expect("open"));
    let compact = ["compact", text(dir.path())];
    let plan = json(DONE, &[&compact[..], &["--dry-run"]].concat());
    assert_eq!(plan["accepted"], false);
    let declines = &plan["column_families"][0]["steps"][0]["declines"];
    assert_eq!(reasons(declines), ["blob-files"]);
    assert!(declines[0]["files"][0].is_string(), "{plan}");
    let report = json(DONE, &compact);
    let declines = |document: &Value| document["column_families"][0]["declines"].clone();
    assert_eq!(declines(&report), declines(&plan));
    assert_eq!(
        (&report["stats"]["jobs_done"], &report["jobs_returned"]),
        (&0.into(), &1.into())
    );
    assert_eq!(reasons(&report["returned"]), ["blob-files"]);
    assert!(report["returned"][0]["change"].is_string());
    let db = DB::open(&options, dir.path()).expect("open");
    let value = db.get("key").expect("sound");
    assert_eq!(value.as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_staging_folder_that_is_a_link_is_foretold_as_it_is_met() {
    let (dir, db) = made();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    std::os::unix::fs::symlink(&elsewhere, db.join("rockmill.staging")).expect("a link");
    let compact = ["compact", text(&db)];
    let plan = json(DONE, &[&compact[..], &["--dry-run"]].concat());
    assert_eq!(plan["accepted"], false);
    let step = &plan["column_families"][0]["steps"][0];
    assert_eq!(reasons(&step["declines"]), ["staging-folder"]);
    let report = json(DONE, &compact);
    assert_eq!(reasons(&report["returned"]), ["staging-folder"]);
}

#[test]
fn the_doctor_lists_every_reason_of_every_column_family() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = with_counters(dir.path());
    let report = json(BAD_DATA, &["doctor", text(dir.path())]);
    assert_eq!(report["accepted"], false);
    let families = report["column_families"].as_array().expect("families");
    assert_eq!(
        (&families[0]["name"], &families[0]["accepted"]),
        (&"default".into(), &true.into())
    );
    assert_eq!(families[1]["name"], "counters");
    assert_eq!(reasons(&families[1]["declines"]), ["merge-operands"]);
    let files = families[1]["declines"][0]["files"].as_array();
    assert_eq!(files.map(Vec::len), Some(2));
    assert_eq!(families[1]["declines"][0]["attach"], true);
    assert_eq!(families[1]["accepted_with_attach"], true);
    let (out, _) = expect(BAD_DATA, &["doctor", text(dir.path())]);
    let words: Vec<_> = out.split_whitespace().collect();
    for said in [
        "merge-operands in 2 of 2 files: ",
        "what rockmill::Attach in C++ and rockmill_attach in Rust add \
         column family counters: without merge-operands, no reason is left",
    ] {
        assert!(words.join(" ").contains(said), "{out}");
    }
    let hints = report["hints"].as_array().expect("hints");
    let jobs = hints
        .iter()
        .find(|hint| hint["option"] == "max_background_jobs");
    let jobs = jobs.expect("a hint");
    assert_eq!((&jobs["value"], &jobs["set"]), (&"2".into(), &"4".into()));
    drop(db);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_allow_2pc(true);
    options.set_compaction_filter("mine", |_, _, _| Decision::Keep);
    options.set_compression_type(DBCompressionType::Lz4hc);
    options.set_compression_options(-14, 3, 0, 1 << 14);
    options.set_target_file_size_base(1 << 20);
    let path = dir.path().join("other");
    drop(DB::open(&options, &path).expect("open"));
    let report = json(BAD_DATA, &["doctor", text(&path)]);
    assert_eq!(reasons(&report["declines"]), ["allow-2pc"]);
    let family = &report["column_families"][0];
    let expected = ["compaction-filter", "compression-dictionary"];
    assert_eq!(reasons(&family["declines"]), expected);
    assert_eq!(family["declines"][0]["what"], "compaction_filter is mine");
    let (out, _) = expect(BAD_DATA, &["doctor", text(&path)]);
    for said in [
        "written by RocksDB 11.12.0: known (7.8 to 11.12)\n",
        "#include <rockmill/rocksdb.hpp>\n",
        "options.set_compaction_service(rockmill::Service::builder().build()?);\n",
        "and say --write-committed",
        "max_dict_bytes is 16384",
        "target_file_size_base",
    ] {
        assert!(out.contains(said), "{out}");
    }
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    let words: Vec<_> = out.split_whitespace().collect();
    let adds = "column family default: without allow-2pc and compaction-filter, 1 reason is left";
    assert!(words.join(" ").contains(adds), "{out}");
    let (_, settings) = out.split_once("\nsettings ").expect("it ends with them");
    assert_eq!(
        settings.lines().skip(1).collect::<Vec<_>>(),
        [
            "  Rockmill, the database",
            "    .write_committed() // only if all transactions are WriteCommitted",
            "  RocksDB, column family default",
            "    compression_opts.max_dict_bytes=0",
        ]
    );
    assert_eq!(report["support"], "known");
    assert_eq!(report["doors"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        report["settings"][0]["line"],
        ".write_committed() // only if all transactions are WriteCommitted"
    );
    assert_eq!(report["settings"][1]["column_families"][0], "default");
}

#[test]
fn attach_removes_some_reasons_of_one_kind_and_leaves_others() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let declines = |name: &str, configure: fn(&mut Options)| {
        let path = dir.path().join(name);
        let mut options = Options::default();
        options.create_if_missing(true);
        configure(&mut options);
        drop(DB::open(&options, &path).expect("open"));
        let report = json(BAD_DATA, &["doctor", text(&path)]);
        let of_family = &report["column_families"][0]["declines"];
        let all =
            [&report["declines"], of_family].map(|some| some.as_array().expect("a list").clone());
        let all = all.concat().into_iter();
        let all = all.map(|decline| (decline["reason"].to_string(), decline["attach"].clone()));
        all.collect::<Vec<_>>()
    };
    let is = |reason: &str, attach: bool| vec![(format!("\"{reason}\""), attach.into())];
    let chosen_by_size = declines("universal", |options| {
        options.set_compaction_style(DBCompactionStyle::Universal);
        let mut universal = UniversalCompactOptions::default();
        universal.set_compression_size_percent(50);
        options.set_universal_compaction_options(&universal);
    });
    assert_eq!(chosen_by_size, is("compression", true));
    let other_codec = |options: &mut Options| options.set_compression_type(DBCompressionType::Bz2);
    assert_eq!(declines("bzip2", other_codec), is("compression", false));
    assert_eq!(
        declines("2pc", |options| options.set_allow_2pc(true)),
        is("allow-2pc", true)
    );
    let unordered = declines("unordered", |options| {
        options.set_allow_2pc(true);
        options.set_unordered_write(true);
    });
    assert_eq!(unordered, is("allow-2pc", false));
}

#[test]
fn the_doctor_warns_of_incremental_universal_compactions() {
    for (is_incremental, warnings) in [(false, 0), (true, 1)] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut universal = UniversalCompactOptions::default();
        universal.set_incremental(is_incremental);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compaction_style(DBCompactionStyle::Universal);
        options.set_universal_compaction_options(&universal);
        drop(DB::open(&options, dir.path()).expect("open"));
        let report = json(DONE, &["doctor", text(dir.path())]);
        let hints = report["hints"].as_array().expect("hints").iter();
        let option = "compaction_options_universal.incremental";
        let hints = hints.filter(|hint| hint["option"] == option && hint["set"] == "false");
        assert_eq!(hints.count(), warnings, "{report}");
    }
}

#[test]
fn the_doctor_names_a_reason_once_for_all_column_families() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_comparator("by length", Box::new(|a, b| a.len().cmp(&b.len())));
    let mut with = ["default", "a", "b"].map(|family| (family, options.clone()));
    // The column family's own reason does not repeat the shared ones.
    with[2]
        .1
        .set_compaction_filter("mine", |_, _, _| Decision::Keep);
    let db = DB::open_cf_with_opts(&options, dir.path(), with).expect("open");
    for key in ["a", "bb"] {
        db.put(key, "value").expect("put");
    }
    db.flush().expect("flush");
    drop(db);
    let (out, err) = expect(BAD_DATA, &["doctor", text(dir.path())]);
    assert!(out.contains("\nall 3 column families\n"), "{out}");
    assert_eq!(out.matches("comparator is by length").count(), 1, "{out}");
    assert!(err.contains(text(dir.path())), "{err}");
    let report = json(BAD_DATA, &["doctor", text(dir.path())]);
    for family in report["column_families"].as_array().expect("families") {
        let mut expected = vec!["comparator"];
        expected.extend((family["name"] == "b").then_some("compaction-filter"));
        assert_eq!(reasons(&family["declines"]), expected, "{report}");
    }
    assert!(
        out.contains("\ncolumn family b\n  compaction-filter: "),
        "{out}"
    );
    assert_eq!(report["settings"].as_array().map(Vec::len), Some(0));
}

#[test]
fn only_a_database_and_keys_in_order_are_taken() {
    let (dir, db) = made();
    for command in ["compact", "doctor"] {
        expect(WRONG_USAGE, &[command, text(dir.path())]);
        expect(ENVIRONMENT, &[command, text(&dir.path().join("missing"))]);
        expect(WRONG_USAGE, &[command]);
    }
    let compact = |code, more: &[&str]| expect(code, &[&["compact", text(&db)], more].concat()).1;
    let err = compact(WRONG_USAGE, &["--column-family", "nowhere"]);
    assert!(err.contains("nowhere"), "{err}");
    let err = compact(WRONG_USAGE, &["--from", "b", "--to", "a"]);
    assert!(err.contains("--from"), "{err}");
    compact(WRONG_USAGE, &["--from", "0x1"]);
    compact(WRONG_USAGE, &["--filter-bits-per-key", "0"]);
    compact(WRONG_USAGE, &["--device", "gpu"]);
    let err = compact(ENVIRONMENT, &["--device", "cuda:99"]);
    assert!(err.contains("cuda:99"), "{err}");
    let manifest = fs::read_to_string(db.join("CURRENT")).expect("read");
    fs::write(db.join(manifest.trim()), "no log").expect("write");
    let (_, of_doctor) = expect(BAD_DATA, &["doctor", text(&db)]);
    for err in [compact(BAD_DATA, &[]), of_doctor] {
        assert!(err.contains(text(&db)), "{err}");
    }
}

/// Makes a closed database with these column families, each with two overlapping files.
fn with_families(dir: &Path, names: &[&str]) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_disable_auto_compactions(true);
    options.set_target_file_size_base(1 << 20);
    let with = names.iter().map(|name| (*name, options.clone()));
    let db = DB::open_cf_with_opts(&options, dir, with).expect("open");
    for name in names {
        let family = db.cf_handle(name).expect("a column family");
        for run in ["1", "2"] {
            db.put_cf(family, "key", run).expect("put");
            db.flush_cf(family).expect("flush");
        }
    }
}

/// Result of each column family, by name.
fn results(report: &Value) -> Vec<(&str, &str)> {
    let families = report["column_families"].as_array().expect("families");
    families
        .iter()
        .map(|family| {
            let [name, result] = ["name", "result"].map(|field| &family[field]);
            (name.as_str().expect("text"), result.as_str().expect("text"))
        })
        .collect()
}

#[test]
fn all_column_families_are_compacted_and_none_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    with_families(dir.path(), &["default", "a", "b", "c"]);
    let some = [
        "compact",
        text(dir.path()),
        "--family",
        "a",
        "--family",
        "b",
    ];
    let report = json(DONE, &some);
    assert_eq!(results(&report), [("a", "compacted"), ("b", "compacted")]);
    assert_eq!(report["other_column_families"], Value::Array(Vec::new()));
    let before = sst_files(dir.path());
    let all = ["compact", text(dir.path())];
    let plan = json(DONE, &[&all[..], &["--dry-run"]].concat());
    let planned = plan["column_families"].as_array().expect("families");
    let planned = planned
        .iter()
        .map(|family| family["compacted_already"] == true);
    assert_eq!(planned.collect::<Vec<_>>(), [false, true, true, false]);
    let (out, _) = expect(DONE, &all);
    let said = "4 column families: 2 compacted, 2 compacted already; ";
    assert!(out.contains(said), "{out}");
    assert!(out.contains("by Rockmill\n"), "{out}");
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    let after = sst_files(dir.path());
    assert_eq!(after.iter().filter(|file| before.contains(file)).count(), 2);
    let unchanged = snapshot(dir.path());
    let (out, _) = expect(DONE, &all);
    let said = "all 4 column families are compacted already; --force compacts them again";
    assert!(out.ends_with(&format!("{said}\n")), "{out}");
    assert!(snapshot(dir.path()) == unchanged);
    let forced = json(DONE, &[&all[..], &["--force"]].concat());
    assert_eq!(forced["stats"]["jobs_done"], 4, "{forced}");

    // An entry that is only in the log is work for its column family alone.
    let options = Options::default();
    let db = DB::open_cf(&options, dir.path(), ["default", "a", "b", "c"]).expect("open");
    db.put_cf(db.cf_handle("c").expect("a family"), "key", "3")
        .expect("put");
    drop(db);
    let report = json(DONE, &all);
    let already = "compacted-already";
    let expected = [
        ("default", already),
        ("a", already),
        ("b", already),
        ("c", "compacted"),
    ];
    assert_eq!(results(&report), expected);
}

#[test]
fn a_column_family_without_files_is_empty() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    with_families(&db, &["default", "a"]);
    let db = text(&db);
    drop(
        DB::open_cf(&Options::default(), db, ["default", "a"]).map(|mut db| {
            db.create_cf("b", &Options::default()).expect("a family");
        }),
    );
    let (out, _) = expect(DONE, &["compact", db]);
    assert!(out.contains(" empty "), "{out}");
    assert!(
        out.contains("3 column families: 2 compacted, 1 empty; "),
        "{out}"
    );
    // With a range it has no such keys, as others.
    let (out, _) = expect(DONE, &["compact", db, "--from", "x", "--force"]);
    assert!(
        out.ends_with("nothing to compact: no SST file holds such keys\n"),
        "{out}"
    );
    let (out, _) = expect(DONE, &["compact", db, "--family", "b"]);
    assert!(
        out.ends_with("nothing to compact: there is no SST file\n"),
        "{out}"
    );
}

#[test]
fn a_damaged_column_family_costs_itself_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    with_families(dir.path(), &["default", "a", "b"]);
    let rows = json(DONE, &["verify", text(dir.path())]);
    let mut rows = rows.as_array().expect("rows").iter();
    let of_a = rows
        .find(|row| row["column_family"] == "a")
        .expect("a file");
    let file = dir.path().join(of_a["file"].as_str().expect("a name"));
    let mut bytes = fs::read(&file).expect("read");
    // In the first data block.
    bytes[2] ^= 1;
    fs::write(&file, bytes).expect("write");
    let report = json(BAD_DATA, &["compact", text(dir.path())]);
    let expected = [
        ("default", "compacted"),
        ("a", "failed"),
        ("b", "compacted"),
    ];
    assert_eq!(results(&report), expected, "{report}");
    let again = json(BAD_DATA, &["compact", text(dir.path())]);
    let expected = [
        ("default", "compacted-already"),
        ("a", "failed"),
        ("b", "compacted-already"),
    ];
    assert_eq!(results(&again), expected, "{again}");
}

#[test]
fn the_doctor_groups_column_families_that_have_the_same_hint() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let names: Vec<_> = (0..16).map(|number| format!("family{number:02}")).collect();
    let names: Vec<_> = ["default"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    with_families(dir.path(), &names);
    let (out, _) = expect(DONE, &["doctor", text(dir.path())]);
    let said = "  all 17 column families: target_file_size_base is 1048576: ";
    assert_eq!(out.matches("target_file_size_base is").count(), 1, "{out}");
    assert!(out.contains(said), "{out}");
    // Only settings follow this word.
    for line in out
        .lines()
        .filter(|line| line.trim_start().starts_with("set: "))
    {
        assert!(!line.contains("path"), "{out}");
    }
    assert!(
        out.contains("what OPTIONS do not say\n  if the program gives"),
        "{out}"
    );
}
