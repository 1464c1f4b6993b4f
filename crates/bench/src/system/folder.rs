//! The folder of results: a file for each measurement of a cell, so that a further call goes on where one
//! has stopped.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use rockmill_side_by_side::machine::{processor, usual_threads};
use rockmill_terminal::outcome::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cell::{Cell, Outcome};

/// Results of one experiment, which no other process writes meanwhile.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    cells: PathBuf,
    experiment: &'static str,
    origin: Origin,
    _fresh: Fresh,
    /// Held until this is dropped.
    _lock: File,
}

/// Folders that were not there before, the innermost first. Those in which there is nothing go when this is dropped.
#[derive(Debug)]
struct Fresh(Vec<PathBuf>);

impl Fresh {
    /// What has to be made for `dir` to be there.
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

/// Who measured where. Cells of two origins are not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Origin {
    /// Of this program's sources, as far as its build could tell.
    commit: String,
    /// Hash of the program.
    program: String,
    /// Processor, and how many threads of it.
    machine: String,
    /// Folder of the databases.
    dir: PathBuf,
}

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    origin: Origin,
    /// As it was sent, so that no new field goes unnoticed.
    cell: Value,
    outcome: Outcome,
}

impl Folder {
    /// Opens a folder, which is made if need be and goes if nothing is put there, for databases that lie in `databases`.
    ///
    /// # Errors
    /// Environment if it cannot be made or another process uses it.
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

    /// What came of a cell in an earlier call, at a time from 0.
    ///
    /// # Errors
    /// Usage if it was measured with something else, Data if the file is none of ours.
    pub fn load(&self, cell: &Cell, time: u32) -> Result<Option<Outcome>, Failure> {
        let path = self.path(cell, time);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&path, &e)),
        };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|e| Failure::Data(format!("{}: no result: {e}; remove it", path.display())))?;
        let Kept { origin, .. } = &kept;
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

    /// Keeps what came of a cell at a time from 0.
    ///
    /// # Errors
    /// Environment if that cannot be written, and then nothing is.
    pub fn store(&self, cell: &Cell, time: u32, outcome: &Outcome) -> Result<(), Failure> {
        let kept = Kept {
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
    /// Environment if that cannot be written.
    pub fn report(&self, extension: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.dir.join(format!("{}.{extension}", self.experiment));
        write(&path, text.as_bytes())?;
        Ok(path)
    }

    /// What was measured with, for the head of a report.
    pub fn origin(&self) -> String {
        let Origin {
            commit,
            machine,
            dir,
            ..
        } = &self.origin;
        format!("commit {commit}; {machine}; databases in {}", dir.display())
    }

    /// No other cell's, since a stem has no dot.
    fn path(&self, cell: &Cell, time: u32) -> PathBuf {
        let stem = cell.file_stem();
        self.cells.join(match time {
            0 => format!("{stem}.json"),
            _ => format!("{stem}.{}.json", time + 1),
        })
    }
}

/// A number for some bytes, of which only this build need know how it comes about.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn settings(cell: &Cell) -> Result<Value, Failure> {
    serde_json::to_value(cell).map_err(|e| Failure::Environment(e.to_string()))
}

/// Writes a file that is whole or not there. What one that was interrupted has left, the next replaces: no other
/// process writes here meanwhile.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let part = path.with_added_extension("part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|e| {
        // Its room is needed.
        let _ = fs::remove_file(&part);
        failed(path, &e)
    })
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}
