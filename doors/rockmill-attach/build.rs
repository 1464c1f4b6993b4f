//! Compiles `attach.cpp`. The crates rockmill-attach and rockmill-rocksdb have this build script.

use std::env;
use std::path::PathBuf;

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let here = package.join("../rockmill-attach");
    let source = here.join("src/attach.cpp");
    let headers = here.join("../../include");
    for path in [&here.join("build.rs"), &source, &headers] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let mut compiler = cc::Build::new();
    compiler
        .cpp(true)
        .std("c++20")
        .file(source)
        .include(headers);
    compiler.flag("-isystem").flag(rocksdb_headers());
    compiler.define("NDEBUG", None);
    // Classes without type information also work with a RocksDB that has it.
    compiler.flag("-fno-rtti");
    compiler.compile("rockmill_attach_cpp");
}

/// The folder of the headers of the RocksDB that is linked.
fn rocksdb_headers() -> PathBuf {
    println!("cargo::rerun-if-env-changed=ROCKSDB_INCLUDE_DIR");
    if let Some(told) = env::var_os("DEP_ROCKSDB_INCLUDE") {
        return told.into();
    }
    // The crate librocksdb-sys only tells its own folder.
    let package =
        env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("a dependency links RocksDB");
    let headers = env::var_os("ROCKSDB_INCLUDE_DIR").unwrap_or("rocksdb/include".into());
    PathBuf::from(package).join(headers)
}
