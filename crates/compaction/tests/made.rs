//! The files that benchmarks create have the requested contents.

#[allow(dead_code, reason = "the benchmark uses the rest")]
#[path = "../benches/made/mod.rs"]
mod made;

use made::{Inputs, Workload};
use rockmill_core::{CancelToken, InputTable};
use rockmill_format::compression::CompressionType;

#[test]
fn files_hold_what_was_asked_for_and_go_away() {
    let dir = tempfile::tempdir().expect("a folder");
    let workload = Workload {
        key_bytes: 12,
        value_bytes: 88,
        runs: 5,
        versions: 3,
        compression: CompressionType::None,
        raw_bytes: 60_000,
    };
    let made = Inputs::new(&workload, dir.path(), "input", &CancelToken::new());
    let made = made.expect("there is room");
    let sum = |of: fn(&InputTable) -> u64| made.tables().iter().map(of).sum::<u64>();
    assert_eq!(made.tables().len(), 5);
    assert_eq!(sum(|table| table.meta.properties.num_entries), 600);
    assert_eq!(sum(|table| table.meta.properties.raw_key_size), 600 * 20);
    assert_eq!(sum(|table| table.meta.properties.raw_value_size), 600 * 88);
    drop(made);
    assert!(!dir.path().join("input").exists());
}
