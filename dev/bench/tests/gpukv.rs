//! `rockmill-bench gpukv` at a tiny scale, on the host.

mod common;

use common::{DONE, Folder, WRONG_USAGE, expect, text};
use serde_json::Value;

/// Measures experiments, and returns the rows of the JSON.
fn measure(experiments: &str, more: &[&str]) -> Vec<Value> {
    let folder = Folder::new();
    let (out, databases) = (folder.out(), folder.databases());
    let places = ["gpukv", "--out", text(&out), "--dir", text(&databases)];
    let args = ["--experiment", experiments, "--scale", "0.00001"];
    let threads = ["--threads", "2", "--repeat", "1"];
    let (said, _) = expect(DONE, &[&places[..], &args, &threads, more].concat());
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
    let mut left = databases.read_dir().expect("list");
    assert!(left.next().is_none(), "databases are removed");
    let rows = std::fs::read(out.join("gpukv.json")).expect("it was written");
    serde_json::from_slice(&rows).expect("JSON")
}

fn count(rows: &[Value], experiment: &str) -> usize {
    let of = rows.iter().filter(|row| row["experiment"] == experiment);
    of.count()
}

#[test]
fn gets_by_the_batch_find_the_same_values_in_all_ways() {
    let rows = measure("lookup,latency,embedding,table,load,refresh", &[]);
    let counts = ["lookup", "latency", "embedding", "table", "load", "refresh"];
    let counts = counts.map(|experiment| count(&rows, experiment));
    // Product of the numbers of sizes, draws, batches, tables and ways.
    assert_eq!(counts, [4 * 2 * 12, 4 * 3, 5, 2 * 3 * 8, 2 * 2, 1]);
    for row in &rows {
        assert!(row["keys_per_s"].as_f64().expect("a number") > 0.0, "{row}");
        let is_timed = row["experiment"] == "latency";
        assert_eq!(row["p999_us"].is_number(), is_timed, "{row}");
    }
}

#[test]
fn kernels_that_follow_values_come_to_the_same_end_in_all_ways() {
    let rows = measure("dependent,dynamic,streaming,bfs,pagerank", &[]);
    let counts = ["dependent", "dynamic", "streaming", "bfs", "pagerank"];
    let counts = counts.map(|experiment| count(&rows, experiment));
    assert_eq!(counts, [2 * 4, 4, 4, 2 * 3, 2 * 3]);
}

#[test]
fn the_host_answers_kernels() {
    let rows = measure("ring,mixed", &[]);
    assert_eq!(count(&rows, "mixed"), 2 * 2);
    assert!(count(&rows, "ring") >= 2 * 2);
    let by_kernels = rows.iter().filter(|row| row["way"] == "ring");
    for row in by_kernels {
        assert!(row["p50_us"].as_f64().expect("it is timed") > 0.0, "{row}");
    }
}

#[test]
fn what_a_view_costs_that_nobody_asks_is_measured() {
    let rows = measure("idle", &[]);
    assert_eq!(count(&rows, "idle"), 2);
    for row in rows {
        assert!(row["cpu_s"].is_number() && row["wall_s"].as_f64() >= Some(1.0));
    }
}

#[test]
fn only_ways_that_are_asked_for_are_measured() {
    let rows = measure("streaming", &["--ways", "view,kernel-1"]);
    let ways: Vec<_> = rows.iter().map(|row| row["way"].as_str()).collect();
    assert_eq!(ways, [Some("view")]);
}

#[test]
fn wrong_arguments_are_told() {
    let (_, said) = expect(WRONG_USAGE, &["gpukv", "--scale", "0"]);
    assert!(said.contains("--scale"), "{said}");
    let (_, said) = expect(WRONG_USAGE, &["gpukv", "--device", "auto"]);
    assert!(said.contains("neither cpu nor cuda:N"), "{said}");
}
