//! The folder of results, with one file per measurement of a cell, so that another call can resume.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use rockmill_side_by_side::machine::{processor, usual_threads};
use rockmill_terminal::outcome::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cell::{Cell, Outcome};

/// Results of one experiment. No other process writes them at the same time.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    cells: PathBuf,
    experiment: &'static str,
    origin: Origin,
    _fresh: Fresh,
    /// Lock, held until this is dropped.
    _lock: File,
}

/// Newly created folders, the innermost first. Empty ones are removed when this is dropped.
#[derive(Debug)]
struct Fresh(Vec<PathBuf>);

impl Fresh {
    /// Returns the folders that have to be created for `dir`.
    fn of(dir: &Path) -> Self {
        let all = dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
        let missing = all.take_while(|dir| !dir.exists());
        Self(missing.map(Path::to_owned).collect())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Build and machine of a measurement. Cells with different origins are not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Origin {
    /// Commit of this program's sources, if the build could find it.
    commit: String,
    /// Hash of the program.
    program: String,
    /// Processor and number of its threads.
    machine: String,
    /// Folder of the databases.
    dir: PathBuf,
}

/// Contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedCell {
    #[serde(flatten)]
    origin: Origin,
    /// The cell as it was sent, so that a new field cannot go unnoticed.
    cell: Value,
    outcome: Outcome,
}

impl Folder {
    /// Opens a folder for databases in `databases`. Creates it if necessary, and removes it if nothing is written
    /// there.
    ///
    /// # Errors
    /// Environment if it cannot be created or another process uses it.
    pub fn open(dir: &Path, experiment: &'static str, databases: &Path) -> Result<Self, Failure> {
        let cells = dir.join(experiment);
        let fresh = Fresh::of(&cells);
        let made = fs::create_dir_all(&cells).and_then(|()| File::open(dir));
        let lock = made.map_err(|e| failed(dir, &e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let dir = dir.display();
                let what = format!("{dir}: another process measures into it; name another --out");
                return Err(Failure::Environment(what));
            }
            Err(TryLockError::Error(e)) => return Err(failed(dir, &e)),
        }
        let program = std::env::current_exe().and_then(fs::read);
        let program = program.map_err(|e| failed(Path::new("this program"), &e))?;
        Ok(Self {
            dir: dir.to_owned(),
            cells,
            experiment,
            origin: Origin {
                commit: env!("ROCKMILL_COMMIT").to_owned(),
                program: format!("{:016x}", hash(&program)),
                machine: format!("{}, {} threads", processor(), usual_threads()),
                dir: databases.to_owned(),
            },
            _fresh: fresh,
            _lock: lock,
        })
    }

    /// Returns the result of a cell in an earlier call; `time` counts its measurements from 0.
    ///
    /// # Errors
    /// Usage if it was measured with other settings, Data if the file is not a result.
    pub fn load(&self, cell: &Cell, time: u32) -> Result<Option<Outcome>, Failure> {
        let path = self.path(cell, time);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&path, &e)),
        };
        let kept: SavedCell = serde_json::from_slice(&text).map_err(|e| {
            Failure::Data(format!("{}: not a result: {e}; remove it", path.display()))
        })?;
        let SavedCell { origin, .. } = &kept;
        let other = if origin.machine != self.origin.machine {
            Some(format!("on another machine ({})", origin.machine))
        } else if (&origin.commit, &origin.program) != (&self.origin.commit, &self.origin.program) {
            Some(format!("by another build (commit {})", origin.commit))
        } else if origin.dir != self.origin.dir {
            Some(format!("with --dir {}", origin.dir.display()))
        } else if kept.cell != settings(cell)? {
            Some("with other settings".to_owned())
        } else {
            None
        };
        other.map_or(Ok(Some(kept.outcome)), |other| {
            let path = path.display();
            let what = format!("{path}: was measured {other}; remove it or name another --out");
            Err(Failure::Usage(what))
        })
    }

    /// Stores the result of a cell; `time` counts its measurements from 0.
    ///
    /// # Errors
    /// Environment if it cannot be written; then no file is left.
    pub fn store(&self, cell: &Cell, time: u32, outcome: &Outcome) -> Result<(), Failure> {
        let kept = SavedCell {
            origin: self.origin.clone(),
            cell: settings(cell)?,
            outcome: outcome.clone(),
        };
        let path = self.path(cell, time);
        let text = serde_json::to_vec_pretty(&kept).map_err(|e| failed(&path, &e.into()))?;
        write(&path, &text)
    }

    /// Writes a report, `EXPERIMENT.extension`, and returns its path.
    ///
    /// # Errors
    /// Environment if it cannot be written.
    pub fn report(&self, extension: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.dir.join(format!("{}.{extension}", self.experiment));
        write(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Describes build and machine for the head of a report.
    pub fn origin(&self) -> String {
        let Origin {
            commit,
            machine,
            dir,
            ..
        } = &self.origin;
        format!("commit {commit}; {machine}; databases in {}", dir.display())
    }

    /// The path is unique, because a stem has no dot.
    fn path(&self, cell: &Cell, time: u32) -> PathBuf {
        let stem = cell.file_stem();
        self.cells.join(match time {
            0 => format!("{stem}.json"),
            _ => format!("{stem}.{}.json", time + 1),
        })
    }
}

/// Hashes bytes; the value need be stable only within this build.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn settings(cell: &Cell) -> Result<Value, Failure> {
    serde_json::to_value(cell).map_err(|e| Failure::Environment(e.to_string()))
}

/// Writes a file that is either complete or absent. The next call replaces the file of an interrupted one; no other
/// process writes here at the same time.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let part = path.with_added_extension("part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|e| {
        // Frees its space.
        let _ = fs::remove_file(&part);
        failed(path, &e)
    })
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}
