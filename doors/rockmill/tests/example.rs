//! The example for users.

use std::env;
use std::process::Command;

#[test]
fn the_example_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = env::current_exe().expect("it has a path");
    let built = test.ancestors().nth(2).expect("a profile's folder");
    let mut example = Command::new(built.join("examples/rust-rocksdb"));
    let output = example.arg(folder.path().join("database")).output();
    let output = output.expect("cargo has built it");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(printed.contains(" done"), "{printed}");
}
