//! Passes the commit of the build to the command, and compiles its kernels.

#[path = "../../build/commit.rs"]
mod commit;
#[path = "../../build/device/mod.rs"]
mod device;

use std::path::Path;

fn main() {
    compile_kernels();
    commit::name();
    println!("cargo:rerun-if-changed=build.rs");
}

/// Compiles the kernels of `gpukv`, always for the host, and for GPUs if a compiler is there.
fn compile_kernels() {
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = |name: &str| Path::new(&crate_folder).join(name);
    let (own, include, shared) = (
        folder("kernels"),
        folder("../../include"),
        folder("../../kernels"),
    );
    println!("cargo:rustc-check-cfg=cfg(has_cuda)");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .warnings_into_errors(true)
        .includes([&include, &shared])
        .file(own.join("host.cpp"))
        .compile("rockmill_bench_host");
    let compiled = device::compile(&device::Kernels {
        sources: &[&own, &include, &shared],
        flags: &["-I", "../../../include", "-I", "../../../kernels"],
        library: "rockmill_bench_cuda",
    });
    if compiled.is_some() {
        println!("cargo:rustc-cfg=has_cuda");
    }
}
