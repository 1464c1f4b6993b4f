//! Records the commit and the RocksDB version in the command, and lets it run with old C and C++ libraries.

#[path = "../../build/commit.rs"]
mod commit;
#[path = "build/libraries.rs"]
mod libraries;

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    commit::name();
    let rocksdb = rocksdb_version().unwrap_or_else(|| "of an unknown version".to_owned());
    println!("cargo:rustc-env=ROCKMILL_ROCKSDB={rocksdb}");
    libraries::link_for("bins");
}

/// The version in the headers of the RocksDB that is linked.
fn rocksdb_version() -> Option<String> {
    let include = PathBuf::from(env::var_os("DEP_ROCKSDB_INCLUDE")?);
    let header = fs::read_to_string(include.join("rocksdb/version.h")).ok()?;
    let number = |name: &str| {
        let mut lines = header.lines();
        lines.find_map(|line| line.strip_prefix(&format!("#define ROCKSDB_{name} ")))
    };
    let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(number);
    Some(format!(
        "{}.{}.{}",
        major?.trim(),
        minor?.trim(),
        patch?.trim()
    ))
}
