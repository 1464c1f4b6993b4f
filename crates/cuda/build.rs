//! Compiles kernels/ for the host, always, and for GPUs, where a CUDA compiler is found.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, io};

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
    match find_nvcc().map_or_else(|| fetch_nvcc(&kernels.join("../scripts/nvcc.sh")), Ok) {
        Ok(nvcc) => {
            println!("cargo:rerun-if-changed={}", nvcc.display());
            build_cuda(&nvcc, &kernels);
        }
        Err(why) => {
            watch_for_nvcc();
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

fn folder_of(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

/// Where scripts/nvcc.sh links the compiler that it keeps in the user's cache folder.
fn cached() -> Option<PathBuf> {
    let cache = folder_of("XDG_CACHE_HOME").or_else(|| Some(folder_of("HOME")?.join(".cache")))?;
    Some(cache.join("rockmill/nvcc"))
}

/// Folders on the path.
fn path() -> Vec<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
}

/// Where a compiler may be: a toolkit's, one on the path, or the fetched one.
fn places() -> Vec<PathBuf> {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder_of);
    toolkits
        .map(|dir| dir.join("bin"))
        .chain(path().into_iter().filter(|dir| dir.join("nvcc").is_file()))
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .chain(cached().map(|dir| dir.join("bin")))
        .map(|dir| dir.join("nvcc"))
        .collect()
}

/// `NVCC`, or the first that knows all architectures that are asked for.
fn find_nvcc() -> Option<PathBuf> {
    match env::var_os("NVCC").filter(|nvcc| !nvcc.is_empty()) {
        Some(nvcc) => Some(nvcc.into()),
        None => places().into_iter().find(|nvcc| is_new_enough(nvcc)),
    }
}

/// Fetches NVIDIA's pinned wheels, once for all builds of a user.
fn fetch_nvcc(script: &Path) -> Result<PathBuf, String> {
    if env::var("CARGO_NET_OFFLINE").is_ok_and(|offline| offline == "true") {
        return Err("no CUDA compiler was found, and cargo is told to stay offline".to_owned());
    }
    let ran = Command::new("bash").arg(script).output();
    let ran = ran.map_err(|e| format!("cannot run {}: {e}", script.display()))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        return Err(said.lines().last().unwrap_or("no reason given").to_owned());
    }
    find_nvcc().ok_or_else(|| "no CUDA compiler knows all of ROCKMILL_CUDA_ARCH".to_owned())
}

/// Lets cargo run this again once a compiler appears. A path that does not exist would have it run at every
/// build, so the folders around are watched, and where the fetched one will be there is an empty folder.
fn watch_for_nvcc() {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder_of);
    let around = path().into_iter().chain([PathBuf::from("/usr/local")]);
    let cached = cached().filter(|dir| make_old_dir(dir).is_ok());
    for dir in toolkits
        .chain(around)
        .chain(cached)
        .filter(|dir| dir.is_dir())
    {
        println!("cargo:rerun-if-changed={}", dir.display());
    }
}

fn is_new_enough(nvcc: &Path) -> bool {
    let Ok(listed) = Command::new(nvcc).arg("--list-gpu-arch").output() else {
        return false;
    };
    let known = String::from_utf8_lossy(&listed.stdout).into_owned();
    let known: Vec<_> = known.lines().map(str::trim).collect();
    architectures()
        .iter()
        .all(|arch| known.contains(&format!("compute_{arch}").as_str()))
}

fn build_cuda(nvcc: &Path, kernels: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = out.join("cuda.o");
    let mut command = Command::new(nvcc);
    command
        .args(["-std=c++17", "-O3", "-Xcompiler", "-fPIC", "-c"])
        .args(code_for(&architectures()))
        .arg(kernels.join("cuda.cu"))
        .arg("-o")
        .arg(&object);
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("cannot run {}: {e}", nvcc.display()));
    assert!(status.success(), "{} failed: {status}", nvcc.display());
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

/// Makes a folder that is older than this run, which cargo compares it with.
fn make_old_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    File::open(dir)?.set_modified(SystemTime::UNIX_EPOCH)
}
