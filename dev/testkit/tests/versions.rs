//! The versions of Rust that files of the repository name are the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(REPOSITORY).join(path)).expect(path)
}

/// The text behind `before` up to a quote or the line's end.
fn value(path: &str, before: &str) -> String {
    let text = read(path);
    let (_, rest) = text.split_once(before).expect(before);
    let end = rest.find(['"', '\n']).expect("an end");
    rest[..end].to_owned()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The versions in `text` behind the word Rust.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("Rust 1.").map(|(at, _)| {
        let version = &text[at + "Rust ".len()..];
        let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
        version[..end.unwrap_or(version.len())].trim_end_matches('.')
    })
}

#[test]
fn all_files_name_the_same_versions_of_rust() {
    let used = value("rust-toolchain.toml", "channel = \"");
    let library = value("Cargo.toml", "rust-version = \"");
    let command = value("crates/sql/Cargo.toml", "rust-version = \"");
    assert_eq!(
        value("doors/rockmill-rocksdb/Cargo.toml", "rust-version = \""),
        library
    );
    assert_eq!(value("scripts/setup.sh", "MIN_RUST="), command);
    assert_eq!(
        value("Dockerfile", "FROM rust:"),
        format!("{used}-bookworm AS build")
    );
    let mut paths = Vec::new();
    for folder in ["docs", "scripts", ".github", "examples"] {
        files(&Path::new(REPOSITORY).join(folder), &mut paths);
    }
    for file in [
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
        "doors/cli/Cargo.toml",
    ] {
        paths.push(Path::new(REPOSITORY).join(file));
    }
    let allowed = [&*used, &library, &command];
    let mut seen = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a text");
        for version in named(&text) {
            assert!(
                allowed.contains(&version),
                "{version} in {}",
                path.display()
            );
            seen.insert(version.to_owned());
        }
    }
    assert!(seen.contains(&command), "the guide names what is needed");
}
