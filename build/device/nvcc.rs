//! Finds a CUDA compiler, or downloads one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, io};

use super::{architectures, cache};

fn folder_of(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

/// The link by which scripts/nvcc.sh names the compiler in the user's cache folder.
fn cached() -> Option<PathBuf> {
    Some(cache()?.join("nvcc"))
}

/// Folders on the path.
fn path() -> Vec<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
}

/// Possible places of a compiler: a toolkit's, one on the path, or the downloaded one.
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

/// `NVCC`, or the first compiler that supports all requested architectures.
pub fn find() -> Option<PathBuf> {
    match env::var_os("NVCC").filter(|nvcc| !nvcc.is_empty()) {
        Some(nvcc) => Some(nvcc.into()),
        None => places().into_iter().find(|nvcc| is_new_enough(nvcc)),
    }
}

/// Downloads NVIDIA's pinned wheels, once for all builds of a user.
pub fn fetch(script: &Path) -> Result<PathBuf, String> {
    if env::var("CARGO_NET_OFFLINE").is_ok_and(|offline| offline == "true") {
        return Err("no CUDA compiler was found, and cargo is told to stay offline".to_owned());
    }
    let ran = Command::new("bash").arg(script).output();
    let ran = ran.map_err(|e| format!("cannot run {}: {e}", script.display()))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        return Err(said.lines().last().unwrap_or("no reason given").to_owned());
    }
    find().ok_or_else(|| "no CUDA compiler knows all of ROCKMILL_CUDA_ARCH".to_owned())
}

/// Makes cargo run this again once a toolkit is installed or a compiler downloaded. Cargo would run it at every build
/// if it watched a path that does not exist. So the parent folders are watched, and an empty folder represents the
/// compiler that may be downloaded. The folders on the path are not watched, because they change whenever a program is
/// installed.
pub fn watch() {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder_of);
    let around = [PathBuf::from("/usr/local")];
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

/// Makes a folder that is older than this run, which cargo compares it with.
fn make_old_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    File::open(dir)?.set_modified(SystemTime::UNIX_EPOCH)
}
