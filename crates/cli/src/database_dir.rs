//! The folder of a database that no process is changing.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rockmill_core::CancelToken;
use rockmill_engine::storage::LocalStorage;
use rockmill_engine::tree::TreeFollower;
use rockmill_format::manifest::Tree;

use crate::outcome::Failure;

/// Name of the file that names the MANIFEST.
const CURRENT: &str = "CURRENT";

/// Looks whether there is a database in `dir`.
///
/// # Errors
/// Usage if there is none; Environment if `dir` is missing or the system refuses to say.
pub fn require(dir: &Path) -> Result<(), Failure> {
    let refused = |e: io::Error| Failure::Environment(format!("{}: {e}", dir.display()));
    let none = |why: &str| Failure::Usage(format!("{}: no database, {why}", dir.display()));
    if !fs::metadata(dir).map_err(refused)?.is_dir() {
        return Err(none("it is not a folder"));
    }
    match dir.join(CURRENT).try_exists().map_err(refused)? {
        true => Ok(()),
        false => Err(none("it has no CURRENT")),
    }
}

/// [`require`], and that there is a file of options.
///
/// # Errors
/// See [`require`].
pub fn require_with_options(dir: &Path) -> Result<(), Failure> {
    require(dir)?;
    let refused = |e: io::Error| Failure::Environment(format!("{}: {e}", dir.display()));
    for entry in fs::read_dir(dir).map_err(refused)? {
        let name = entry.map_err(refused)?.file_name();
        if name.as_encoded_bytes().starts_with(b"OPTIONS-") {
            return Ok(());
        }
    }
    let what = format!("{}: no database, it has no OPTIONS", dir.display());
    Err(Failure::Usage(what))
}

/// What the MANIFEST of the database in `dir` says.
///
/// # Errors
/// Data if it is damaged; Environment if it cannot be read.
pub fn read_tree(dir: &Path) -> Result<Tree, Failure> {
    let unknown_floor = (0, 0);
    let mut follower = TreeFollower::default();
    match follower.refresh(&LocalStorage, dir, unknown_floor, &CancelToken::new()) {
        Ok(()) => Ok(follower.tree().clone()),
        Err(e) => {
            let what = format!("{}: {}", dir.display(), e.what);
            Err(match is_refused(dir) {
                true => Failure::Environment(what),
                false => Failure::Data(what),
            })
        }
    }
}

/// Whether the system keeps us from reading CURRENT or the MANIFEST, which the follower tells from
/// damage only in words.
fn is_refused(dir: &Path) -> bool {
    let opened = fs::read_to_string(dir.join(CURRENT))
        .and_then(|manifest| File::open(dir.join(manifest.trim_end())));
    opened.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}
