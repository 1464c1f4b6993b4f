//! Passes the commit of the build to the command, and compiles its kernels.

#[path = "../../build/device/mod.rs"]
mod device;

use std::path::Path;
use std::process::Command;

fn main() {
    compile_kernels();
    let commit = git(&["describe", "--always", "--dirty"]);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=ROCKMILL_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]);
        // Cargo would treat a missing file as changed at every build.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Compiles the kernels of `gpukv` for the host, always, and for GPUs.
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

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
