//! Compiles CUDA sources, if there is a CUDA compiler. For build scripts of crates with kernels.

mod compiled;
mod nvcc;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Architectures of a build for users; the last one also as PTX, for future GPUs.
const RELEASE_ARCHITECTURES: &[&str] = &["80", "86", "89", "90", "100", "120"];

/// Kernels of a crate.
pub struct Kernels<'a> {
    /// Folder of `cuda.cu`, and folders of all files that it includes. Folders named `tests` in them are ignored.
    pub sources: &'a [&'a Path],
    /// Further arguments. Paths are relative to the first folder, so that all checkouts produce the same object.
    pub flags: &'a [&'a str],
    /// Name of the library that the crate links.
    pub library: &'a str,
}

/// Compiles the kernels for GPUs and links them into the crate. Returns the compiler; `None` if there is none or the
/// crate is built without its feature `cuda`.
///
/// PATH and HOME are not watched: an editor and a terminal have different ones, and would compile everything in turn.
pub fn compile(kernels: &Kernels<'_>) -> Option<PathBuf> {
    for variable in [
        "ROCKMILL_CUDA_ARCH",
        "NVCC",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "NVCC_CCBIN",
        "CUDA_HOME",
        "CUDA_PATH",
    ] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    for folder in kernels.sources {
        for file in compiled::sources_in(folder) {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    env::var_os("CARGO_FEATURE_CUDA")?;
    if env::var_os("NVCC").is_some_and(|nvcc| nvcc == "none") {
        return None;
    }
    // Read at run time, because checkouts that share a target folder share the compiled build script.
    let crate_folder = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let script = Path::new(&crate_folder).join("../../scripts/nvcc.sh");
    match nvcc::find().map_or_else(|| nvcc::fetch(&script), Ok) {
        Ok(nvcc) => {
            println!("cargo:rerun-if-changed={}", nvcc.display());
            compile_with(&nvcc, kernels);
            Some(nvcc)
        }
        Err(why) => {
            nvcc::watch();
            println!(
                "cargo:warning=this build has no GPU backend: {why}; install a CUDA toolkit or run \
                 scripts/nvcc.sh and build again, or set NVCC=none"
            );
            None
        }
    }
}

fn compile_with(nvcc: &Path, kernels: &Kernels<'_>) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = out.join("cuda.o");
    // Compiles architectures in parallel, with paths relative to the folder, so that all checkouts produce the same
    // object. A call of a host-only function would be a warning, and the code around it would do nothing.
    let strict = ["--Werror", "all-warnings"];
    // Names of internal functions have a hash of the source's absolute path, which differs between checkouts.
    let same_names = ["-Xcudafe", "--orig_src_path_name,/rockmill/cuda.cu"];
    let mut flags = ["-std=c++17", "-O3", "-Xcompiler", "-fPIC", "--threads=0"]
        .into_iter()
        .chain(strict)
        .chain(same_names)
        .chain(kernels.flags.iter().copied())
        .map(str::to_owned)
        .collect::<Vec<_>>();
    flags.extend(code_for(&architectures()));
    flags.extend(toolkit_map(nvcc));
    let key = compiled::Key::new(nvcc, &flags, kernels.sources);
    if !compiled::find(&key, &object) {
        // Kept files have names without a process's number, which the host compiler writes into the object.
        let kept = out.join("kept");
        std::fs::create_dir_all(&kept).unwrap_or_else(|e| panic!("{}: {e}", kept.display()));
        let status = Command::new(nvcc)
            .current_dir(kernels.sources[0])
            .args(flags)
            .arg("--keep")
            .arg("--keep-dir")
            .arg(&kept)
            .args(["-c", "cuda.cu", "-o"])
            .arg(&object)
            .status()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", nvcc.display()));
        assert!(status.success(), "{} failed: {status}", nvcc.display());
        compiled::keep(&key, &object);
        let _ = std::fs::remove_dir_all(&kept);
    }
    cc::Build::new().object(&object).compile(kernels.library);
}

/// Names the toolkit's headers `/cuda` in messages of assertions: the toolkit may lie in a user's home, and two users
/// make equal files.
fn toolkit_map(nvcc: &Path) -> Vec<String> {
    let Some(toolkit) = nvcc.parent().and_then(Path::parent) else {
        return Vec::new();
    };
    let map = format!("-ffile-prefix-map={}=/cuda", toolkit.display());
    vec!["-Xcompiler".to_owned(), map]
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
