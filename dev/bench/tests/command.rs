//! `rockmill-bench` called as a user calls it: one compaction, and published formulas.

mod common;

use std::fs;

use common::{DONE, ENVIRONMENT, WRONG_USAGE, expect};
use rockmill_testkit::UnitProfile;
use serde_json::Value;

/// Columns of a terminal.
const TERMINAL: usize = 80;

#[test]
fn a_bench_has_a_row_for_each_workload_system_and_number_of_threads() {
    let args = [
        "compaction",
        "--workload",
        "8x32:none:20K",
        "--workload",
        "16x100:lz4:20K",
        "--threads",
        "1,2",
        "--json",
    ];
    let with = |more: &[&str]| -> Vec<Value> {
        let (out, _) = expect(DONE, &[&args[..], more].concat());
        serde_json::from_str(&out).expect("JSON")
    };
    let rows = with(&["--repeat", "3"]);
    let mut seen = Vec::new();
    for row in &rows {
        let text = |field: &str| row[field].as_str().expect(field);
        let system = text("system");
        seen.push((text("workload"), row["threads"].as_u64(), system));
        assert_eq!(text("device"), "cpu");
        // Only Rockmill's results are compared, with RocksDB's.
        let identical = (system == "rockmill").then_some(true);
        assert_eq!(row["identical"].as_bool(), identical, "{row}");
        assert!(row["bytes_in"].as_u64() > row["bytes_out"].as_u64());
        assert_eq!((&row["versions"], &row["runs"]), (&4.into(), &8.into()));
        let number = |field: &str| row[field].as_f64().expect(field);
        let gigabytes = (number("bytes_in") + number("bytes_out")) / 1e9;
        assert!((number("cpu_s_per_gb") * gigabytes - number("cpu_s")).abs() < 1e-9);
        assert!((number("gb_per_s") * number("wall_s") - gigabytes).abs() < 1e-9);
        assert!(row["peak_memory_bytes"].is_u64());
        let walls = row["walls_s"].as_array().expect("walls");
        let not_above = |wall: &&Value| wall.as_f64() <= row["wall_s"].as_f64();
        assert_eq!(
            (walls.len(), walls.iter().filter(not_above).count()),
            (3, 2)
        );
    }
    let mut expected = Vec::new();
    for workload in ["8x32:none:20000", "16x100:lz4:20000"] {
        for threads in [1, 2] {
            for system in ["rocksdb", "rockmill"] {
                expected.push((workload, Some(threads), system));
            }
        }
    }
    let suffix = " entries, 4 versions, 8 runs";
    for ((workload, _, _), (expected, _, _)) in seen.iter_mut().zip(&expected) {
        assert_eq!(workload.strip_suffix(suffix), Some(*expected));
        *workload = expected;
    }
    assert_eq!(seen, expected);

    let rows = with(&["--rocksdb", "no", "--versions", "1", "--runs", "3"]);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(
            (&row["system"], &row["identical"]),
            (&"rockmill".into(), &Value::Null)
        );
    }
    let rows = with(&["--rocksdb", "no", "--also", "bypass,bypass,database"]);
    let caches: Vec<_> = rows.iter().map(|row| &row["output_cache"]).collect();
    assert_eq!(caches, ["database", "bypass"].repeat(4));
    let rows = with(&["--no-compare"]);
    assert!(rows.iter().all(|row| row["identical"].is_null()));
}

#[test]
fn a_bench_shows_a_table_for_each_workload() {
    let bench = ["compaction", "--workload", "8x0:7,8x32:zstd:3K"];
    let (out, _) = expect(DONE, &[&bench[..], &["--threads", "1"]].concat());
    for expected in ["8x0:none:7 entries", "8x32:zstd:3000 entries", "CPU s/GB"] {
        assert!(out.contains(expected), "{out}");
    }
    assert_eq!(out.matches("yes").count(), 2, "{out}");
}

#[test]
fn tables_fit_a_terminal() {
    let args = [
        "compaction",
        "--workload",
        "16x100:lz4:3000",
        "--threads",
        "1,2",
        "--profile",
    ];
    let (out, _) = expect(DONE, &args);
    let widest = out.lines().map(|line| line.chars().count()).max();
    assert!(widest > Some(20) && widest <= Some(TERMINAL), "{out}");
}

#[test]
fn a_compaction_of_what_was_compacted_is_one_job_however_large_it_is() {
    let args = [
        "compaction",
        "--again",
        "--workload",
        "16x256:none:100K",
        "--versions",
        "1",
        "--target-file-mib",
        "1",
        "--threads",
        "2",
        "--json",
    ];
    let (out, _) = expect(DONE, &args);
    let rows: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    let row = &rows[1];
    // By default RocksDB makes jobs of half of 25 files.
    assert!(row["bytes_in"].as_u64() > Some(25 << 20), "{row}");
    assert_eq!((&row["jobs"], &row["identical"]), (&1.into(), &true.into()));
    assert!(row["subcompactions"].as_u64() > Some(1), "{row}");
}

#[test]
fn a_simulated_device_makes_the_same_database() {
    let args = [
        "compaction",
        "--workload",
        "16x100:lz4:20K",
        "--threads",
        "2",
        "--json",
        "--device",
    ];
    let (out, err) = expect(DONE, &[&args[..], &["sim:fpga-cu"]].concat());
    let rows: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    assert_eq!(rows[1]["device"], "sim:fpga-cu");
    assert_eq!(rows[1]["identical"], true);
    assert!(err.contains("the host computes for simulated"), "{err}");
    let (_, err) = expect(WRONG_USAGE, &[&args[..], &["sim:gpu"]].concat());
    assert!(err.contains("fpga-cu, near-data-ssd, mid-gpu"), "{err}");
}

#[test]
fn a_bench_shows_what_a_device_left_to_the_cpu() {
    let profile = UnitProfile::find("mid-gpu").expect("it ships");
    let mut profile = serde_json::to_value(&profile).expect("JSON");
    profile["memory_bytes"] = 1.into();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("small.json");
    fs::write(&path, profile.to_string()).expect("there is room");
    let device = format!("sim:{}", path.display());
    let bench = ["compaction", "--workload", "8x32:3K", "--threads", "1"];
    let bench = [&bench[..], &["--device", &device]].concat();
    let (table, _) = expect(DONE, &bench);
    let note = "the CPU did some or all of the work: ";
    assert!(
        table.contains(note) && table.contains("device memory"),
        "{table}"
    );
    let (out, _) = expect(DONE, &[&bench[..], &["--json"]].concat());
    let rows: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    assert!(rows[0]["left_to_cpu"].is_null());
    let left = rows[1]["left_to_cpu"].as_str().expect("a sentence");
    assert!(left.starts_with(note), "{left}");
    assert_eq!(rows[1]["identical"], true);
}

#[test]
fn a_bench_names_the_grammar_and_the_device_that_is_not_there() {
    let bench = |code, more: &[&str]| expect(code, &[&["compaction"], more].concat()).1;
    let err = bench(WRONG_USAGE, &["--workload", "8x32:gzip"]);
    assert!(err.contains("KEYxVALUE["), "{err}");
    bench(WRONG_USAGE, &[]);
    bench(
        WRONG_USAGE,
        &["--workload", "8x32:1K", "--rocksdb", "perhaps"],
    );
    let err = bench(
        ENVIRONMENT,
        &["--workload", "8x32:1K", "--device", "cpu,cuda:99"],
    );
    assert!(err.contains("device cuda:99: "), "{err}");
    bench(WRONG_USAGE, &["--workload", "8x32:1K", "--device", "gpu"]);
    let err = bench(ENVIRONMENT, &["--workload", "8x32:1K", "--dir", "/nowhere"]);
    assert!(err.contains("--dir"), "{err}");
}

#[test]
fn a_published_profile_is_shown_and_others_are_refused() {
    let (out, _) = expect(DONE, &["model", "--profile", "fpga-cu", "--json"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let first = &report["rows"][0];
    // 200 MHz divided by the merger's 50 + 5 * 8 / 8 cycles.
    assert_eq!(first["bottleneck"], "merger");
    assert!((first["pairs_per_second"].as_f64().expect("a number") - 200e6 / 55.0).abs() < 1.0);
    let (_, err) = expect(WRONG_USAGE, &["model", "--profile", "fpga"]);
    assert!(err.contains("fpga-cu"), "{err}");
    for name in ["fpga-cu", "near-data-ssd", "mid-gpu"] {
        let (table, _) = expect(DONE, &["model", "--profile", name]);
        assert!(table.contains("bound by"), "{table}");
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(TERMINAL), "{table}");
    }
    expect(WRONG_USAGE, &["model"]);
    let (_, err) = expect(WRONG_USAGE, &["model", "--profile", "/nowhere/board.json"]);
    assert!(err.contains("cannot read"), "{err}");
}

#[test]
fn an_unknown_subcommand_is_refused() {
    let (_, err) = expect(WRONG_USAGE, &["open"]);
    assert!(err.contains("unrecognized subcommand"), "{err}");
}

#[test]
fn the_command_says_what_it_is() {
    let (out, _) = expect(DONE, &["--version"]);
    let version = concat!("rockmill-bench ", env!("CARGO_PKG_VERSION"));
    assert_eq!(out.trim(), version);
    let (out, _) = expect(DONE, &["--help"]);
    assert!(
        out.starts_with("Compares the speed of RocksDB and Rockmill"),
        "{out}"
    );
    assert!(!out.contains("compaction-process"), "{out}");
}
