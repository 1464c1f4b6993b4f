//! Compiles kernels/codec for the host, and the tests' emulation of groups of several lanes, which also runs
//! kernels/view and kernels/ring.

use std::env;
use std::path::Path;

fn main() {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let manifest_dir = Path::new(&manifest_dir);
    let kernels = manifest_dir.join("../../kernels");
    let lanes = manifest_dir.join("tests/codec/lanes.cpp");
    let folders = ["codec", "common", "ring", "view"].map(|folder| kernels.join(folder));
    for path in folders.iter().chain([&lanes]) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    compile("rockmill_codec", &kernels, &kernels.join("codec/host.cpp"));
    // A separate library: programs that link this crate take nothing from it.
    compile("rockmill_codec_lanes", &kernels, &lanes);
}

/// `ROCKMILL_KERNELS_SANITIZE=1` compiles the code with sanitizers for bad accesses and undefined behaviour. Programs
/// that link it must link the sanitizers (scripts/sanitize.sh).
fn compile(library: &str, kernels: &Path, source: &Path) {
    println!("cargo:rerun-if-env-changed=ROCKMILL_KERNELS_SANITIZE");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .warnings_into_errors(true)
        .include(kernels)
        .file(source);
    if env::var_os("ROCKMILL_KERNELS_SANITIZE").is_some() {
        build
            .flag("-fsanitize=address,undefined")
            .flag("-fno-sanitize-recover=all")
            .flag("-g");
    }
    build.compile(library);
}
