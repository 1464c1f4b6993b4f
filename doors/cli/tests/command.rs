//! The command as a user types it: output, exit codes, and jobs repeated in fresh processes.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, expect, made, sst_files, text};
use rust_rocksdb::{BlockBasedOptions, DB, Options};
use serde_json::Value;

#[test]
fn the_demo_finds_both_results_identical() {
    let (out, _) = expect(
        DONE,
        &["demo", "--entries", "20000", "--threads", "2", "--json"],
    );
    let rows: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    let systems: Vec<_> = rows.iter().map(|row| row["system"].clone()).collect();
    assert_eq!(systems, ["rocksdb", "rockmill"]);
    for row in &rows {
        assert_eq!(row["identical"], true);
        assert_eq!(row["threads"], 2);
        assert!(row["bytes_in"].as_u64() > row["bytes_out"].as_u64());
        for field in [
            "workload",
            "device",
            "wall_s",
            "cpu_s",
            "gb_per_s",
            "peak_memory_bytes",
        ] {
            assert!(!row[field].is_null(), "{field}");
        }
    }
    let (table, err) = expect(DONE, &["demo", "--entries", "2000", "--device", "auto"]);
    assert!(
        table.contains("rockmill") && table.contains("yes"),
        "{table}"
    );
    assert!(err.contains("device auto: "), "{err}");
    let sentence = table.lines().last().expect("a sentence");
    let rest = sentence.strip_prefix("Rockmill took ").expect(sentence);
    let (share, same) = rest.split_once(" of RocksDB's time; ").expect(sentence);
    assert!(
        share.parse::<f64>().is_ok_and(|share| share > 0.0),
        "{sentence}"
    );
    let entries = same.strip_suffix(" entries are the same").expect(sentence);
    let entries: u64 = entries.replace(',', "").parse().expect(sentence);
    assert!((500..2000).contains(&entries), "{sentence}");
    expect(WRONG_USAGE, &["demo", "--device", "gpu"]);
    let (_, err) = expect(WRONG_USAGE, &["demo", "--device", "sim:fpga-cu"]);
    assert!(err.contains("use `rockmill-bench`"), "{err}");
}

#[test]
fn devices_are_listed_with_and_without_a_gpu() {
    let (out, _) = expect(DONE, &["devices", "--json"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let devices = report["devices"].as_array().expect("a list");
    assert_eq!(devices[0]["device"], "cpu");
    assert!(devices[0]["threads"].as_u64() > Some(0));
    assert!(devices[0]["memory_bytes"].as_u64() > Some(1 << 20));
    assert_eq!(report["no_gpu"].is_null(), devices.len() > 1);
    let limits = &report["limits"];
    assert_eq!(limits["threads"], devices[0]["threads"]);
    let by = limits["threads_by"].as_str().expect("a word");
    assert!(["machine", "affinity", "cgroup"].contains(&by), "{by}");
    let (limit, all) = (&limits["memory_bytes"], &devices[0]["memory_bytes"]);
    assert!(limit.as_u64() <= all.as_u64(), "{limit} of {all}");
    assert_eq!(limits["memory_file"].is_null(), limit == all);
    for gpu in &devices[1..] {
        assert!(gpu["memory_bytes"].as_u64() > Some(1 << 20), "{gpu}");
        let is_usable = gpu["unusable"].is_null();
        assert_eq!(gpu["to_device"].is_number(), is_usable, "{gpu}");
        assert_eq!(gpu["from_device"].is_number(), is_usable, "{gpu}");
    }
    let (text, _) = expect(DONE, &["devices"]);
    assert!(
        text.contains("GB/s to") && text.contains("limits: "),
        "{text}"
    );
    assert!(!text.contains("sim:"), "{text}");
    assert_eq!(text.contains("no GPU: "), devices.len() == 1, "{text}");
}

#[test]
fn an_unknown_subcommand_is_refused() {
    let (_, err) = expect(WRONG_USAGE, &["open"]);
    assert!(err.contains("unrecognized subcommand"), "{err}");
}

#[test]
fn a_repeated_job_gives_the_same_bytes_with_any_threads_memory_and_output_cache() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    let job = job.trim();
    let mut first: Option<Value> = None;
    let runs = [
        ("1", "32", "database"),
        ("2", "64", "bypass"),
        ("7", "512", "bypass"),
    ];
    for (threads, memory_mib, output_cache) in runs {
        let args = [
            "job",
            "run",
            job,
            "--threads",
            threads,
            "--memory-mib",
            memory_mib,
            "--output-cache",
            output_cache,
            "--json",
        ];
        let (out, _) = expect(DONE, &args);
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert!(report["subcompactions"].as_u64() > Some(3), "{report}");
        assert!(
            report["files"].as_object().expect("files").len() > 3,
            "{report}"
        );
        check_what_it_took(&report);
        let first = first.get_or_insert_with(|| report.clone());
        assert_eq!(
            first["files"], report["files"],
            "{threads} threads, {memory_mib} MiB, output cache: {output_cache}"
        );
    }
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("make a folder");
    let args = ["job", "run", job, "--out", text(&out), "--profile"];
    let (shown, _) = expect(DONE, &args);
    assert!(shown.contains("PCIe 0.0 MB to the device"), "{shown}");
    let files = sst_files(&out);
    assert!(!files.is_empty());
    for file in files {
        expect(DONE, &["verify", text(&file)]);
    }
}

/// Checks the fields for resources other than time.
fn check_what_it_took(report: &Value) {
    for field in ["process_cpu_s", "process_cpu_s_per_gb"] {
        assert!(report[field].as_f64() > Some(0.0), "{field}: {report}");
    }
    for field in ["pcie_to_device_bytes", "pcie_from_device_bytes"] {
        assert_eq!(report[field], 0, "{field}");
    }
    assert!(report["gpu_joules"].is_null(), "{report}");
}

#[test]
fn the_first_result_is_kept_and_compared_with() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    let job = PathBuf::from(job.trim());
    let folder = job.parent().expect("a folder");
    let from_inside = Command::new(env!("CARGO_BIN_EXE_rockmill"))
        .args(["job", "run", "job.json"])
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&from_inside.stdout);
    assert!(said.contains("kept as the first result"), "{said}");
    let (out, _) = expect(DONE, &["job", "run", text(&job)]);
    assert!(out.contains("identical to the first time"), "{out}");

    let to = dir.path().join("out");
    let run_to = ["job", "run", text(&job), "--out", text(&to)];
    let (_, err) = expect(ENVIRONMENT, &run_to);
    assert!(err.contains(text(&to)), "{err}");
    fs::create_dir(&to).expect("make a folder");
    fs::write(to.join("000001.sst"), "mine").expect("write");
    let (_, err) = expect(WRONG_USAGE, &run_to);
    assert!(err.contains("000001.sst"), "{err}");
    assert_eq!(fs::read(to.join("000001.sst")).expect("read"), b"mine");

    let outputs = folder.join("outputs.json");
    let kept = fs::read(&outputs).expect("read");
    let mut by_another: Value = serde_json::from_slice(&kept).expect("JSON");
    by_another["compressor"] = "zstd/library-0.1.2".into();
    for (_, sums) in by_another.as_object_mut().expect("fields") {
        // An array of size, checksum and entries.
        if let Some(crc) = sums.get_mut(1) {
            *crc = 1.into();
        }
    }
    fs::write(&outputs, by_another.to_string()).expect("write");
    for path in [&job, &jobs] {
        let (out, _) = expect(DONE, &["job", "run", text(path)]);
        assert!(
            out.contains("the same entries") && out.contains("zstd/library-0.1.2"),
            "{out}"
        );
    }
    fs::write(&outputs, "{}").expect("write");
    expect(BAD_DATA, &["job", "run", text(&job)]);
    fs::remove_file(sst_files(folder).swap_remove(0)).expect("remove");
    let (_, err) = expect(ENVIRONMENT, &["job", "run", text(&job)]);
    assert!(!err.contains("not supported"), "{err}");
}

#[test]
fn many_jobs_are_compared_at_once_and_those_that_differ_are_named() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    let record = ["job", "record", text(&jobs), "--db", text(&db)];
    let job = || PathBuf::from(expect(DONE, &record).0.trim());
    let (one, other) = (job(), job());
    let (out, _) = expect(DONE, &["job", "run", text(&jobs)]);
    let first = "2 jobs: 0 as the first time, 0 not, 2 kept as the first result";
    assert!(out.contains(first), "{out}");
    let (out, _) = expect(DONE, &["job", "run", text(&one), text(&other)]);
    assert!(out.contains("2 jobs: 2 as the first time, 0 not"), "{out}");
    let folder = other.parent().expect("a folder");
    fs::write(folder.join("outputs.json"), "{}").expect("write");
    let (out, err) = expect(BAD_DATA, &["job", "run", text(&jobs)]);
    assert!(
        out.contains(&format!("{}: the output differs", folder.display())),
        "{out}"
    );
    assert!(out.contains("2 jobs: 1 as the first time, 1 not"), "{out}");
    assert!(err.contains("1 of 2 jobs"), "{err}");
    fs::write(folder.join("declined.json"), "\"comparator\"").expect("write");
    let (out, _) = expect(BAD_DATA, &["job", "run", text(&jobs)]);
    assert!(out.contains("not declined as comparator"), "{out}");
    expect(WRONG_USAGE, &["job", "run", text(&jobs), "--json"]);
    expect(WRONG_USAGE, &["job", "run", text(&db)]);
}

#[test]
fn a_closed_pipe_is_quiet_and_a_full_output_is_not() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
    let commands: [&[&str]; 3] = [
        &["job", "run", job.trim()],
        &["job", "record", text(&jobs), "--db", text(&db)],
        &["demo", "--entries", "2000"],
    ];
    for args in commands {
        let run = |stdout: Stdio| {
            Command::new(env!("CARGO_BIN_EXE_rockmill"))
                .args(args)
                .stdout(stdout)
                .stderr(Stdio::piped())
                .output()
                .expect("the command starts")
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = run(writer.into());
        assert_eq!(closed.status.code(), Some(DONE), "{args:?} {closed:?}");
        assert!(closed.stderr.is_empty(), "{args:?} {closed:?}");
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let full = run(full.expect("open").into());
        assert_eq!(full.status.code(), Some(ENVIRONMENT), "{args:?} {full:?}");
    }
}

#[test]
fn only_a_database_can_be_recorded() {
    let (dir, db) = made();
    let jobs = dir.path().join("jobs");
    let record = |code, db: &Path, family: &str| {
        let db = text(db);
        let args = ["job", "record", text(&jobs), "--db", db];
        expect(code, &[&args[..], &["--column-family", family]].concat()).1
    };
    let err = record(WRONG_USAGE, &db, "nowhere");
    assert!(err.contains("nowhere"), "{err}");
    let err = record(WRONG_USAGE, dir.path(), "default");
    assert!(
        err.contains("not a database, it has no file CURRENT"),
        "{err}"
    );
    let err = record(ENVIRONMENT, &dir.path().join("missing"), "default");
    assert!(
        err.ends_with("missing: there is no such file or folder; check the path\n"),
        "{err}"
    );
    let file = dir.path().join("file");
    fs::write(&file, "").expect("write");
    let err = record(WRONG_USAGE, &file, "default");
    assert!(err.contains("it is not a folder; name the folder"), "{err}");
    DB::open_cf(&Options::default(), &db, ["default"])
        .and_then(|mut db| db.create_cf("empty", &Options::default()))
        .expect("a family");
    let err = record(WRONG_USAGE, &db, "empty");
    assert!(
        err.contains("empty has no SST files; name another with --column-family: default"),
        "{err}"
    );
    let manifest = fs::read_to_string(db.join("CURRENT")).expect("read");
    fs::write(db.join(manifest.trim()), "no log").expect("write");
    let err = record(BAD_DATA, &db, "default");
    assert!(!err.contains("not supported"), "{err}");
    assert!(!jobs.exists());
}

#[test]
fn a_job_is_recorded_with_what_options_do_not_say() {
    let (dir, db) = made();
    let mut options = Options::default();
    options.set_allow_2pc(true);
    drop(DB::open(&options, &db).expect("open"));
    let jobs = dir.path().join("jobs");
    let record = ["job", "record", text(&jobs), "--db", text(&db)];
    let (_, err) = expect(BAD_DATA, &record);
    assert!(err.contains("allow_2pc"), "{err}");
    assert!(!jobs.exists());
    let said = ["--write-committed", "--filter-bits-per-key", "10"];
    let (job, _) = expect(DONE, &[&record[..], &said].concat());
    expect(DONE, &["job", "run", job.trim(), "--write-committed"]);
}

#[test]
fn the_command_says_what_it_is() {
    let short = concat!("rockmill ", env!("CARGO_PKG_VERSION"));
    let (out, _) = expect(DONE, &["-V"]);
    assert_eq!(out.trim(), short);
    let (out, _) = expect(DONE, &["--version"]);
    let (first, second) = out.trim().split_once('\n').expect("two lines");
    let commit = first
        .strip_prefix(&format!("{short} ("))
        .and_then(|rest| rest.strip_suffix(')'));
    assert!(commit.is_some_and(|commit| !commit.is_empty()), "{out}");
    let (rocksdb, cuda) = second.split_once(", ").expect("two parts");
    assert!(rocksdb.starts_with("RocksDB 11.12."), "{out}");
    assert!(
        cuda == "no GPU backend" || cuda.starts_with("CUDA 1"),
        "{out}"
    );
    let (out, _) = expect(DONE, &["--help"]);
    assert!(out.starts_with("Rockmill compacts"), "{out}");
}

#[test]
fn manual_pages_and_completions_name_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    expect(DONE, &["generate", text(dir.path())]);
    let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).expect(path);
    let man = read("man/man1/rockmill.1");
    let completions = [
        "bash-completion/completions/rockmill",
        "zsh/site-functions/_rockmill",
        "fish/vendor_completions.d/rockmill.fish",
    ]
    .map(read);
    for command in ["compact", "doctor", "inspect", "verify", "job", "load"] {
        assert!(read(&format!("man/man1/rockmill-{command}.1")).contains("SYNOPSIS"));
        assert!(man.contains(&format!("rockmill\\-{command}(1)")), "{man}");
        assert!(completions.iter().all(|text| text.contains(command)));
    }
    for hidden in ["compaction-process", "help", "job-help"] {
        let page = format!("man/man1/rockmill-{hidden}.1");
        assert!(!dir.path().join(&page).exists(), "{page}");
    }
    assert!(
        completions
            .iter()
            .all(|text| !text.contains("compaction-process"))
    );
}

#[test]
fn a_job_that_a_service_recorded_gives_the_same_bytes_in_a_fresh_process() {
    let (dir, path) = made();
    let jobs = dir.path().join("jobs");
    let service = rockmill::Service::builder()
        .min_job_bytes(0)
        .record_jobs(&jobs)
        .build()
        .expect("the settings are good");
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compaction_service(service.clone());
    let db = DB::open(&options, &path).expect("open");
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    assert!(service.stats().jobs_done > 0, "{}", service.stats());
    for job in fs::read_dir(&jobs).expect("list") {
        let job = job.expect("list").path().join("job.json");
        let (out, _) = expect(DONE, &["job", "run", text(&job)]);
        assert!(out.contains("identical to the first time"), "{out}");
    }
}

#[test]
fn a_job_among_several_is_read_from_the_file_that_was_named() {
    let (dir, db) = made();
    let record = |name: &str| {
        let jobs = dir.path().join(name);
        let (job, _) = expect(DONE, &["job", "record", text(&jobs), "--db", text(&db)]);
        job.trim().to_owned()
    };
    let (one, other) = (record("one"), record("other"));
    let copy = Path::new(&one).with_file_name("copy.json");
    fs::rename(&one, &copy).expect("rename");
    fs::write(&one, "{").expect("write");
    let (out, _) = expect(DONE, &["job", "run", text(&copy), &other]);
    assert!(out.contains("2 jobs"), "{out}");
    let (_, err) = expect(BAD_DATA, &["job", "run", &one, &other]);
    assert!(err.contains(&format!("{one}: ")), "{err}");
}

#[test]
fn a_sound_database_passes_and_a_flipped_bit_does_not() {
    let (_dir, db) = made();
    expect(DONE, &["verify", text(&db)]);
    let file = sst_files(&db).swap_remove(1);
    let (out, _) = expect(DONE, &["inspect", text(&file), "--entries"]);
    assert!(out.contains("key00"), "{out}");
    let mut bytes = fs::read(&file).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("write");
    let (out, err) = expect(BAD_DATA, &["verify", text(&db)]);
    let name = file.file_name().and_then(|n| n.to_str()).expect("a name");
    assert!(out.contains("offset"), "{out}");
    assert_eq!(err, "rockmill: 1 bad of 4 files\n");
    // The name is in the table and with its reason, which is printed once.
    assert_eq!(out.matches(name).count(), 2, "{out}");
    let (out, err) = expect(BAD_DATA, &["verify", text(&file)]);
    assert!(
        err.contains("offset") && !out.contains("offset"),
        "{out}{err}"
    );
}

#[test]
fn exit_codes_tell_usage_from_environment() {
    let (dir, db) = made();
    expect(WRONG_USAGE, &[]);
    expect(WRONG_USAGE, &["demo", "--entries", "none"]);
    expect(WRONG_USAGE, &["demo", "--threads", "0"]);
    expect(WRONG_USAGE, &["verify"]);
    let missing = dir.path().join("missing");
    for command in [
        &["verify"][..],
        &["inspect"],
        &["doctor"],
        &["compact"],
        &["job", "run"],
    ] {
        let (_, err) = expect(ENVIRONMENT, &[command, &[text(&missing)]].concat());
        let what = "there is no such file or folder; check the path";
        assert_eq!(err, format!("rockmill: {}: {what}\n", missing.display()));
    }
    let (_, err) = expect(ENVIRONMENT, &["demo", "--dir", text(&missing)]);
    assert!(err.contains("--dir"), "{err}");
    let foreign = dir.path().join("foreign.sst");
    fs::write(&foreign, "not an SST file".repeat(100)).expect("write");
    expect(BAD_DATA, &["inspect", text(&foreign)]);
    let (_, err) = expect(
        WRONG_USAGE,
        &["job", "run", text(&foreign), "--memory-mib", "1"],
    );
    assert!(err.contains("memory_budget_bytes"), "{err}");
    expect(BAD_DATA, &["job", "run", text(&foreign)]);
    // `inspect` reads an SST on its own, without an open database.
    expect(DONE, &["inspect", text(&sst_files(&db)[0]), "--json"]);
}

#[test]
fn config_tells_how_to_compile_with_what_is_installed_beside_it() {
    let (_, err) = expect(ENVIRONMENT, &["config", "--cflags"]);
    assert!(err.contains("make install PREFIX=.."), "{err}");
    expect(WRONG_USAGE, &["config"]);
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().canonicalize().expect("it is there");
    for name in [
        "bin/rockmill",
        "include/rockmill/gpukv.cuh",
        "lib/librockmill.so",
    ] {
        fs::create_dir_all(prefix.join(name).parent().expect("a folder")).expect("it is made");
        fs::write(prefix.join(name), "").expect("it is written");
    }
    let command = prefix.join("bin/rockmill");
    fs::remove_file(&command).expect("it is there");
    let built = env!("CARGO_BIN_EXE_rockmill");
    fs::hard_link(built, &command)
        .or_else(|_| fs::copy(built, &command).map(drop))
        .expect("it is linked");
    let output = Command::new(&command)
        .args(["config", "--cflags", "--libs"])
        .output();
    let prefix = prefix.display();
    let expected = format!("-I{prefix}/include -L{prefix}/lib -lrockmill\n");
    let printed = output.expect("it starts").stdout;
    assert_eq!(String::from_utf8_lossy(&printed), expected);
}
