//! Where databases lie while they are measured.

use std::fs;
use std::path::{Path, PathBuf};

use super::cell::{Cell, Work};
use super::{folder, jobs};
use crate::outcome::Failure;
use crate::side_by_side::database::{Origin, Spec};

/// A folder that is empty at first and goes away when this is dropped. One that was interrupted left its own,
/// which the next for the same results removes.
pub struct Ground {
    path: PathBuf,
    /// The database of which jobs compact copies, and what it holds.
    origin: Option<(String, Origin)>,
}

impl Ground {
    /// A folder in `parent` for the results in `out`.
    ///
    /// # Errors
    /// Environment if it cannot be made.
    pub fn clear(parent: &Path, out: &Path) -> Result<Self, Failure> {
        let out = fs::canonicalize(out).map_err(|e| failed(out, &e))?;
        let number = folder::hash(out.as_os_str().as_encoded_bytes());
        let path = parent.join(format!("rockmill-system-{number:016x}"));
        let ground = Self { path, origin: None };
        remove(&ground.path)?;
        fs::create_dir(&ground.path).map_err(|e| {
            let parent = parent.display();
            Failure::Environment(format!(
                "cannot make a folder in {parent}: {e}; name another with --dir"
            ))
        })?;
        Ok(ground)
    }

    /// Makes what a cell needs, and lets `measure` use the folder that it is in or is to be made in.
    ///
    /// # Errors
    /// Those of `measure`; Environment if there is no room.
    pub fn with<T>(
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

    /// The database that holds what was specified; of several in a row, the same.
    fn origin(&mut self, spec: &Spec) -> Result<&Origin, Failure> {
        let name = spec.name();
        if self.origin.as_ref().is_none_or(|(known, _)| *known != name) {
            let path = self.path.join("origin");
            remove(&path)?;
            self.origin = Some((name, Origin::make(path, spec)?));
        }
        let origin = self.origin.as_ref().map(|(_, origin)| origin);
        Ok(origin.expect("there is one now"))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // The next one tries again and says what is wrong.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes a folder that may not be there.
fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}
