//! Compiles kernels/ for the host always, and for GPUs if there is a CUDA compiler.

mod boundary;
#[path = "../../../build/device/mod.rs"]
mod device;

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let kernels = Path::new(&manifest_dir).join("../../kernels");
    println!("cargo:rustc-check-cfg=cfg(has_cuda)");
    boundary::check(&kernels, &Path::new(&manifest_dir).join(".."));
    build_host(&kernels);
    let compiled = device::compile(&device::Kernels {
        sources: &[&kernels],
        flags: &[],
        library: "rockmill_kernels_cuda",
    });
    if let Some(nvcc) = compiled {
        link_runtime(&nvcc);
        println!("cargo:rustc-cfg=has_cuda");
        if let Some(version) = version(&nvcc) {
            println!("cargo:rustc-env=ROCKMILL_CUDA_VERSION={version}");
        }
    }
}

/// Such as `13.0`.
fn version(nvcc: &Path) -> Option<String> {
    let said = Command::new(nvcc).arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (_, release) = said.split_once("release ")?;
    Some(release.split_once(',')?.0.to_owned())
}

/// `ROCKMILL_KERNELS_SANITIZE=1` compiles the host's kernels with sanitizers for bad accesses and undefined behaviour.
/// Programs that link them must link the sanitizers (scripts/sanitize.sh).
fn build_host(kernels: &Path) {
    println!("cargo:rerun-if-env-changed=ROCKMILL_KERNELS_SANITIZE");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .warnings_into_errors(true)
        .files(["host.cpp", "faulty.cpp"].map(|file| kernels.join(file)));
    if env::var_os("ROCKMILL_KERNELS_SANITIZE").is_some() {
        build
            .flag("-fsanitize=address,undefined")
            .flag("-fno-sanitize-recover=all")
            .flag("-g");
    }
    build.compile("rockmill_kernels_host");
}

/// Links CUDA's runtime, also for crates above.
fn link_runtime(nvcc: &Path) {
    let real = nvcc.canonicalize().unwrap_or_else(|_| nvcc.to_owned());
    let root = real.parent().and_then(Path::parent);
    for dir in ["lib64", "lib", "targets/x86_64-linux/lib"] {
        let dir = root.map(|root| root.join(dir)).unwrap_or_default();
        if dir.join("libcudart_static.a").is_file() {
            println!("cargo:rustc-link-search=native={}", dir.display());
        }
    }
    // The static runtime looks for the driver at its first call, so the program starts without a driver.
    println!("cargo:rustc-link-lib=static=cudart_static");
    for library in ["stdc++", "dl", "rt", "pthread"] {
        println!("cargo:rustc-link-lib={library}");
    }
}
