//! Records the commit and the RocksDB version in the command, and lets it run with old C and C++ libraries.

#[path = "../../build/commit.rs"]
mod commit;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    commit::name();
    let rocksdb = rocksdb_version().unwrap_or_else(|| "of an unknown version".to_owned());
    println!("cargo:rustc-env=ROCKMILL_ROCKSDB={rocksdb}");
    if env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") {
        avoid_new_glibc();
        link_cxx_statically();
    }
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

fn avoid_new_glibc() {
    println!("cargo:rerun-if-changed=native");
    cc::Build::new()
        .file("native/glibc.c")
        .compile("rockmill_glibc");
    for function in ["hypot", "hypotf", "arc4random"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={function}");
    }
}

/// The linker takes the C++ library from the first folder that has one: this folder has only the static library.
fn link_cxx_statically() {
    let folder = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("cxx");
    let said = Command::new("c++")
        .arg("-print-file-name=libstdc++.a")
        .output();
    let library = said
        .ok()
        .and_then(|said| String::from_utf8(said.stdout).ok());
    // A compiler without the file prints only the name, and the shared library is linked.
    let library = library.map(|path| PathBuf::from(path.trim()));
    let Some(library) = library.filter(|path| path.is_absolute()) else {
        return;
    };
    let link = folder.join("libstdc++.a");
    let _ = fs::remove_file(&link);
    fs::create_dir_all(&folder)
        .and_then(|()| std::os::unix::fs::symlink(library, link))
        .expect("a link to the C++ library");
    println!("cargo:rustc-link-search=native={}", folder.display());
}
