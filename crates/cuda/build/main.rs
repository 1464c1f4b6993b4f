//! Compiles kernels/ for the host, always, and for GPUs, where a CUDA compiler is found.

mod compiled;
mod nvcc;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a build for users runs on; the last one also as PTX, for GPUs to come.
const RELEASE_ARCHITECTURES: &[&str] = &["80", "86", "89", "90", "100", "120"];

fn main() {
    // Asked when this runs: checkouts that share a target folder share what this was compiled to.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let kernels = Path::new(&manifest_dir).join("../../kernels");
    println!("cargo:rerun-if-changed={}", kernels.display());
    println!("cargo:rerun-if-env-changed=ROCKMILL_CUDA_ARCH");
    for variable in [
        "NVCC",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "NVCC_CCBIN",
        "CUDA_HOME",
        "CUDA_PATH",
        "PATH",
        "XDG_CACHE_HOME",
        "HOME",
    ] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rustc-check-cfg=cfg(has_cuda)");
    build_host(&kernels);
    if env::var_os("NVCC").is_some_and(|nvcc| nvcc == "none") {
        return;
    }
    match nvcc::find().map_or_else(|| nvcc::fetch(&kernels.join("../scripts/nvcc.sh")), Ok) {
        Ok(nvcc) => {
            println!("cargo:rerun-if-changed={}", nvcc.display());
            build_cuda(&nvcc, &kernels);
        }
        Err(why) => {
            nvcc::watch();
            println!(
                "cargo:warning=this build has no GPU backend: {why}; install a CUDA toolkit or run \
                 scripts/nvcc.sh and build again, or set NVCC=none"
            );
        }
    }
}

/// `ROCKMILL_KERNELS_SANITIZE=1` has the host's kernels watched for bad accesses and undefined behaviour; whoever
/// links them must link the sanitizers (scripts/sanitize.sh).
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

fn build_cuda(nvcc: &Path, kernels: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = out.join("cuda.o");
    // Architectures side by side; named from within the folder, so that checkouts make the same object.
    // A call of a function that is the host's alone is a warning, and what it stands in does nothing then.
    let strict = ["--Werror", "all-warnings"];
    let mut flags = ["-std=c++17", "-O3", "-Xcompiler", "-fPIC", "--threads=0"]
        .into_iter()
        .chain(strict)
        .map(str::to_owned)
        .collect::<Vec<_>>();
    flags.extend(code_for(&architectures()));
    let key = compiled::Key::new(nvcc, &flags, kernels);
    if !compiled::find(&key, &object) {
        let status = Command::new(nvcc)
            .current_dir(kernels)
            .args(flags)
            .args(["-c", "cuda.cu", "-o"])
            .arg(&object)
            .status()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", nvcc.display()));
        assert!(status.success(), "{} failed: {status}", nvcc.display());
        compiled::keep(&key, &object);
    }
    cc::Build::new()
        .object(&object)
        .compile("rockmill_kernels_cuda");
    let real = nvcc.canonicalize().unwrap_or_else(|_| nvcc.to_owned());
    let root = real.parent().and_then(Path::parent);
    for dir in ["lib64", "lib", "targets/x86_64-linux/lib"] {
        let dir = root.map(|root| root.join(dir)).unwrap_or_default();
        if dir.join("libcudart_static.a").is_file() {
            println!("cargo:rustc-link-search=native={}", dir.display());
        }
    }
    // The static runtime looks for the driver when it is first called, so the program starts without.
    println!("cargo:rustc-link-lib=static=cudart_static");
    for library in ["stdc++", "dl", "rt", "pthread"] {
        println!("cargo:rustc-link-lib={library}");
    }
    println!("cargo:rustc-cfg=has_cuda");
}

/// Rockmill's part of the user's cache folder.
fn cache() -> Option<PathBuf> {
    let folder = |variable| env::var_os(variable).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("rockmill"))
}

/// `ROCKMILL_CUDA_ARCH=90` (or a list) shortens development builds.
fn architectures() -> Vec<String> {
    match env::var("ROCKMILL_CUDA_ARCH") {
        Ok(list) => list.split(',').map(str::to_owned).collect(),
        Err(_) => RELEASE_ARCHITECTURES
            .iter()
            .map(|&a| a.to_owned())
            .collect(),
    }
}

fn code_for(architectures: &[String]) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |arch: &str, code: &str| {
        flags.push("-gencode".to_owned());
        flags.push(format!("arch=compute_{arch},code={code}_{arch}"));
    };
    for arch in architectures {
        add(arch, "sm");
    }
    if let Some(last) = architectures.last() {
        add(last, "compute");
    }
    flags
}
