//! The folder of databases while they are measured.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rockmill_compaction::show_bytes;
use rockmill_side_by_side::database::Origin;
use rockmill_side_by_side::scratch;
use rockmill_side_by_side::spec::DatabaseSpec;
use rockmill_sysio::has_disk;
use rockmill_terminal::outcome::Failure;
use rustix::fs::fstatvfs;

use super::cell::{Cell, Clients, Jobs, Work};
use super::{folder, jobs};

/// A folder that is empty at first and removed when this is dropped. A folder left by an interrupted call is removed by
/// the next call for the same results.
pub struct DatabaseFolder {
    path: PathBuf,
    /// The database whose copies the jobs compact, and its description.
    origin: Option<(String, Origin)>,
}

/// Returns the canonical path of the folder for databases.
///
/// # Errors
/// Environment if there is no such folder, or its path cannot be passed to another process.
pub fn parent(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    let parent = asked.map_or_else(std::env::temp_dir, Path::to_owned);
    let refused = |why: &dyn Display| {
        let parent = parent.display();
        Failure::Environment(format!(
            "cannot use {parent}: {why}; name another with --dir"
        ))
    };
    let known = fs::canonicalize(&parent).map_err(|e| refused(&e))?;
    match known.to_str() {
        Some(_) => Ok(known),
        None => Err(refused(&"its name is not UTF-8")),
    }
}

impl DatabaseFolder {
    /// Creates a folder in `parent` for the results in `out`.
    ///
    /// # Errors
    /// Environment if it cannot be created.
    pub fn clear(parent: &Path, out: &Path) -> Result<Self, Failure> {
        let out = fs::canonicalize(out).map_err(|e| failed(out, &e))?;
        let number = folder::hash(out.as_os_str().as_encoded_bytes());
        let path = parent.join(format!("rockmill-system-{number:016x}"));
        let databases = Self { path, origin: None };
        remove(&databases.path)?;
        fs::create_dir(&databases.path).map_err(|e| {
            let parent = parent.display();
            Failure::Environment(format!(
                "cannot make a folder in {parent}: {e}; name another with --dir"
            ))
        })?;
        Ok(databases)
    }

    /// Returns why a cell cannot be measured here, if there is not enough space for it.
    ///
    /// # Errors
    /// Environment if the free space is unknown.
    pub fn lacks_room(&mut self, cell: &Cell) -> Result<Option<String>, Failure> {
        let needed = match &cell.work {
            Work::Clients(clients) => clients_bytes(clients),
            Work::Jobs(jobs) => {
                let name = jobs.spec.name();
                if self.origin.take_if(|(known, _)| *known != name).is_some() {
                    remove(&self.origin_path())?;
                }
                jobs_bytes(jobs, self.origin.is_some())
            }
        };
        let free = free_bytes(&self.path).map_err(|e| failed(&self.path, &e))?;
        Ok((needed > free).then(|| {
            let dir = self.path.parent().unwrap_or(&self.path).display();
            let (needed, free) = (show_bytes(needed), show_bytes(free));
            format!("needs {needed} in {dir}, where {free} are free")
        }))
    }

    fn origin_path(&self) -> PathBuf {
        self.path.join("origin")
    }

    /// Prepares what a cell needs, and runs `measure` with the folder for it.
    ///
    /// # Errors
    /// The errors of `measure`; Environment if there is no space left.
    pub fn with<T>(
        &mut self,
        cell: &Cell,
        measure: impl FnOnce(&Path) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let done = self.make_and_measure(cell, measure);
        let parent = self.path.parent().unwrap_or(&self.path);
        done.map_err(|failure| scratch::advise_room(failure, parent))
    }

    fn make_and_measure<T>(
        &mut self,
        cell: &Cell,
        measure: impl FnOnce(&Path) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let dir = self.path.join("cell");
        if let Work::Jobs(jobs) = &cell.work {
            let origin = self.origin(&jobs.spec)?;
            for round in jobs::ROUNDS {
                let dir = dir.join(round);
                fs::create_dir_all(&dir).map_err(|e| failed(&dir, &e))?;
                for number in 0..jobs.at_once {
                    origin.copy_to(&dir.join(number.to_string()))?;
                }
            }
            origin.warm()?;
        }
        let measured = measure(&dir)?;
        remove(&dir)?;
        Ok(measured)
    }

    /// Returns the database for `spec`; consecutive calls with the same `spec` return the same database.
    fn origin(&mut self, spec: &DatabaseSpec) -> Result<&Origin, Failure> {
        let name = spec.name();
        if self.origin.as_ref().is_none_or(|(known, _)| *known != name) {
            let path = self.origin_path();
            remove(&path)?;
            self.origin = Some((name, Origin::make(path, spec)?));
        }
        let origin = self.origin.as_ref().map(|(_, origin)| origin);
        Ok(origin.expect("there is one now"))
    }
}

impl Drop for DatabaseFolder {
    fn drop(&mut self) {
        // The next call tries again and reports the error.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Bytes of all records, plus the same for their overwrites, merged, unmerged or being merged.
fn clients_bytes(clients: &Clients) -> u64 {
    const TIMES: u64 = 2;
    let records = &clients.records;
    let bytes = records.entries * records.entry_bytes() as u64;
    with_the_rest(TIMES * u64::from(clients.families) * bytes)
}

/// Bytes of the inputs, if they do not exist yet, and of the output of all jobs.
fn jobs_bytes(jobs: &Jobs, inputs_are_there: bool) -> u64 {
    let workload = &jobs.spec.workload;
    let input = workload.entries * workload.entry_bytes() as u64;
    let output = u64::from(jobs.at_once) * input / jobs.spec.versions;
    with_the_rest(output + if inputs_are_there { 0 } else { input })
}

/// Adds filters, indexes, and the rounding to disk blocks.
fn with_the_rest(bytes: u64) -> u64 {
    const PERCENT_MORE: u64 = 10;
    bytes + bytes / 100 * PERCENT_MORE
}

/// Free bytes for files in a folder; on a file system in memory, at most the available memory.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let dir = File::open(path)?;
    let fs = fstatvfs(&dir)?;
    let free = fs.f_bavail.saturating_mul(fs.f_frsize);
    if has_disk(dir.as_fd()) {
        return Ok(free);
    }
    let memory = fs::read_to_string("/proc/meminfo")?;
    Ok(free.min(available_bytes(&memory).unwrap_or(u64::MAX)))
}

/// Available memory as reported by the system.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Removes a folder that may not exist.
fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::system::args::Experiment;
    use crate::system::tests::args;

    #[test]
    fn a_job_that_finds_no_room_is_told_of_before_anything_is_made() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut databases = DatabaseFolder::clear(parent.path(), parent.path()).expect("a folder");
        let sizes = args(&[
            "--job-mb",
            "1,1000000",
            "--at-once",
            "64",
            "--rocksdb",
            "no",
        ]);
        let cells = Experiment::Scaling.cells(&sizes).expect("cells");
        let lacks: Vec<_> = cells
            .iter()
            .map(|cell| databases.lacks_room(cell).expect("it can be told"))
            .collect();
        assert_eq!(lacks[0], None);
        // A million MB, a quarter of that for each of 64, and a tenth.
        let why = lacks[1].as_deref().expect("no machine has that space");
        assert!(why.starts_with("needs 18.7 TB in "), "{why}");
    }

    #[test]
    fn clients_that_find_no_room_are_told_of_before_they_begin() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut databases = DatabaseFolder::clear(parent.path(), parent.path()).expect("a folder");
        let mut lacks = |scale| {
            let sizes = args(&["--scale", scale, "--value-bytes", "1048576"]);
            let cells = Experiment::Contention.cells(&sizes).expect("cells");
            databases.lacks_room(&cells[0]).expect("it can be told")
        };
        // 10^9 records of 16 B and 1 MiB, twice, and a tenth.
        let why = lacks("10000").expect("no machine has that space");
        assert!(why.starts_with("needs 2.3 PB in "), "{why}");
        assert_eq!(lacks("0.0001"), None);
    }

    #[test]
    fn a_folder_has_one_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let known = parent(Some(dir.path())).expect("it is there");
        assert_eq!(parent(Some(&dir.path().join("."))).as_ref(), Ok(&known));
        let strange = dir.path().join(OsStr::from_bytes(b"\xff"));
        fs::create_dir(&strange).expect("make a folder");
        for (wrong, why) in [
            (strange, "not UTF-8"),
            (dir.path().join("none"), "No such file"),
        ] {
            let refused = parent(Some(&wrong))
                .expect_err("not to be used")
                .to_string();
            assert!(
                refused.contains(why) && refused.contains("--dir"),
                "{refused}"
            );
        }
    }

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:       24689052 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(available_bytes(text), Some(1 << 20));
        assert_eq!(available_bytes("MemAvailable: none"), None);
    }
}
