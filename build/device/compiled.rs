//! A cache of compiled objects by their inputs: six architectures take minutes, and without it each profile and each
//! checkout would compile them again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::SystemTime;
use std::{env, io};

use super::cache;

/// Maximum number of objects; the least recently used one is removed first.
const MAX_KEPT: usize = 16;

/// All inputs of an object: compilers, flags, sources.
pub struct Key(Vec<u8>);

impl Key {
    pub fn new(nvcc: &Path, flags: &[String], sources: &[&Path]) -> Self {
        let mut key = Vec::new();
        let mut add = |bytes: &[u8]| {
            key.extend((bytes.len() as u64).to_le_bytes());
            key.extend(bytes);
        };
        let real = nvcc.canonicalize().unwrap_or_else(|_| nvcc.to_owned());
        add(real.as_os_str().as_encoded_bytes());
        add(&version(nvcc.as_os_str()));
        for variable in ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"] {
            add(env::var_os(variable).unwrap_or_default().as_encoded_bytes());
        }
        let host = env::var_os("NVCC_CCBIN").unwrap_or_else(|| "g++".into());
        add(&version(&host));
        for flag in flags {
            add(flag.as_bytes());
        }
        for folder in sources {
            for file in sources_in(folder) {
                add(file
                    .strip_prefix(folder)
                    .unwrap_or(&file)
                    .as_os_str()
                    .as_encoded_bytes());
                add(&fs::read(&file).expect("the kernels can be read"));
            }
        }
        Self(key)
    }

    fn folder(&self) -> Option<PathBuf> {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        Some(
            cache()?
                .join("kernels")
                .join(format!("{:016x}", hasher.finish())),
        )
    }
}

fn version(compiler: &OsStr) -> Vec<u8> {
    let said = Command::new(compiler).arg("--version").output();
    said.map(|output| output.stdout).unwrap_or_default()
}

/// All files below a folder, in order. A changed test compiles no kernel.
pub fn sources_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    files_below(folder, &mut files).expect("the kernels can be listed");
    files.sort();
    files
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == "tests" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Copies the object of these inputs to `object`, if it is in the cache.
pub fn find(key: &Key, object: &Path) -> bool {
    let Some(folder) = key.folder() else {
        return false;
    };
    let is_it = fs::read(folder.join("from")).is_ok_and(|from| from == key.0);
    if !is_it || fs::copy(folder.join("cuda.o"), object).is_err() {
        return false;
    }
    // Marks the folder as used. If that fails, the object is compiled again some day.
    _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    true
}

/// Stores an object for later builds. One that cannot be stored is compiled again.
pub fn keep(key: &Key, object: &Path) {
    if let Some(folder) = key.folder() {
        _ = try_keep(key, object, &folder);
    }
}

fn try_keep(key: &Key, object: &Path, folder: &Path) -> io::Result<()> {
    let all = folder.parent().unwrap_or(folder);
    // Renamed when it is complete, because other builds may write the same one.
    let fresh = all.join(format!("new.{}", process::id()));
    fs::create_dir_all(&fresh)?;
    let made = fs::copy(object, fresh.join("cuda.o"))
        .and_then(|_| fs::write(fresh.join("from"), &key.0))
        .and_then(|()| {
            _ = fs::remove_dir_all(folder);
            fs::rename(&fresh, folder)
        });
    if made.is_err() {
        fs::remove_dir_all(&fresh)?;
    }
    let mut kept: Vec<_> = fs::read_dir(all)?
        .filter_map(|entry| {
            Some((
                entry.as_ref().ok()?.metadata().ok()?.modified().ok()?,
                entry.ok()?.path(),
            ))
        })
        .collect();
    kept.sort();
    for (_, old) in kept.iter().rev().skip(MAX_KEPT) {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}
