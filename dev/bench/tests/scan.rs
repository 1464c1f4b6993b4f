//! `rockmill-bench scan` at a tiny scale.

#![cfg(feature = "scan")]

mod common;

use common::{DONE, Folder, expect, text};
use serde_json::Value;

#[test]
fn all_systems_answer_with_the_same_rows() {
    let folder = Folder::new();
    let args = [
        "--scale",
        "0.01",
        "--state",
        "settled,live",
        "--parquet",
        "--repeat",
        "1",
        "--compression",
        "lz4",
        "--threads",
        "2",
    ];
    let (out, databases) = (folder.out(), folder.databases());
    let places = ["scan", "--out", text(&out), "--dir", text(&databases)];
    let (said, _) = expect(DONE, &[&places[..], &args].concat());
    assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    let rows = std::fs::read(folder.out().join("scan.json")).expect("it was written");
    let rows: Vec<Value> = serde_json::from_slice(&rows).expect("JSON");
    // Eight queries, two states, four systems.
    assert_eq!(rows.len(), 8 * 2 * 4);
    assert!(rows.iter().all(|row| row["same"] == true));
    let plot = std::fs::read_to_string(folder.out().join("scan.svg")).expect("it was written");
    for part in ["ycsb, live", "q15, settled", "Parquet", "Rockmill cpu"] {
        assert!(plot.contains(part), "{part}");
    }
}
