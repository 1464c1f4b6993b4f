//! The folder of a database that no process is changing.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rockmill_core::{CancelToken, Error};
use rockmill_format::manifest::Tree;
use rockmill_format::names;
use rockmill_snapshot::closed_database::{options_number, refuse_backup};
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::LocalStorage;
use rockmill_terminal::outcome::Failure;

/// Name of the file that names the MANIFEST.
const CURRENT: &str = "CURRENT";

/// Checks that there is a database in `dir`.
///
/// # Errors
/// Usage if there is none; Incomplete if it is one of Pebble; Environment if `dir` is missing or cannot be read.
pub fn require(dir: &Path) -> Result<(), Failure> {
    let refused = |e: io::Error| Failure::of_path(dir, &e);
    let none = |why: &str| {
        Failure::Usage(format!(
            "{}: not a database, {why}; name the folder that the program opens",
            dir.display()
        ))
    };
    if !fs::metadata(dir).map_err(refused)?.is_dir() {
        return Err(none("it is not a folder"));
    }
    if is_of_pebble(dir).map_err(refused)? {
        let what = "it is a database of Pebble, whose format is not read";
        return Err(Failure::Incomplete(format!("{}: {what}", dir.display())));
    }
    match dir.join(CURRENT).try_exists().map_err(refused)? {
        true => {
            let manifest = fs::read_to_string(dir.join(CURRENT)).unwrap_or_default();
            require_permission(&dir.join(CURRENT))?;
            require_permission(&dir.join(manifest.trim_end()))
        }
        false => Err(none("it has no file CURRENT")),
    }
}

/// Like [`require`], and checks that this user may read the newest OPTIONS file.
///
/// # Errors
/// See [`require`].
pub fn require_readable(dir: &Path) -> Result<(), Failure> {
    require(dir)?;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let options = names.filter_map(|name| Some((options_number(&name)?, name)));
    let newest = options.max().map(|(_, name)| dir.join(name));
    newest.map_or(Ok(()), |newest| require_permission(&newest))
}

/// Refuses a file that this user may not read. Readers do not tell that from damage.
fn require_permission(file: &Path) -> Result<(), Failure> {
    match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(Failure::of_path(file, &e)),
        _ => Ok(()),
    }
}

/// Whether a folder holds a database of Pebble: newer versions have markers in place of CURRENT, and all versions name
/// themselves in OPTIONS.
fn is_of_pebble(dir: &Path) -> io::Result<bool> {
    const MARKERS: [&str; 2] = ["marker.manifest.", "marker.format-version."];
    const VERSION: &[u8] = b"pebble_version=";
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            continue;
        };
        if MARKERS.iter().any(|marker| name.starts_with(marker)) {
            return Ok(true);
        }
        // The commands report a file that cannot be read.
        let is_named = |text: Vec<u8>| text.windows(VERSION.len()).any(|part| part == VERSION);
        if options_number(name).is_some() && fs::read(entry.path()).is_ok_and(is_named) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Like [`require`], and checks that there is an OPTIONS file.
///
/// # Errors
/// See [`require`]; Data if there is no such file.
pub fn require_with_options(dir: &Path) -> Result<(), Failure> {
    require_readable(dir)?;
    let refused = |e: io::Error| Failure::of_path(dir, &e);
    for entry in fs::read_dir(dir).map_err(refused)? {
        let name = entry.map_err(refused)?.file_name();
        if name.to_str().and_then(options_number).is_some() {
            return Ok(());
        }
    }
    Err(Failure::Data(format!(
        "{}: it has no OPTIONS file, so what it was configured with is not known: open and close it once \
         with its application, which writes one",
        dir.display()
    )))
}

/// Like [`require_with_options`], and checks that jobs over the database are possible.
///
/// # Errors
/// See [`require_with_options`]; Environment if it is a backup that shares tables with others.
pub fn require_for_jobs(dir: &Path) -> Result<(), Failure> {
    require_with_options(dir)?;
    Ok(refuse_backup(dir)?)
}

/// Converts an engine error for the database in `dir`: a bare file name becomes a path.
pub fn failure(dir: &Path, error: Error) -> Failure {
    error.in_directory(dir).into()
}

/// Puts the path of the database in front of a failure's text.
pub fn in_front(dir: &Path, failure: Failure) -> Failure {
    let with = |what: String| format!("{}: {what}", dir.display());
    match failure {
        Failure::Data(what) => Failure::Data(with(what)),
        Failure::Environment(what) => Failure::Environment(with(what)),
        other => other,
    }
}

/// Reads the MANIFEST of the database in `dir`.
///
/// # Errors
/// Data if it is damaged; Environment if it cannot be read.
pub fn read_tree(dir: &Path) -> Result<Tree, Failure> {
    let unknown_floor = (0, 0);
    let mut follower = TreeFollower::default();
    match follower.refresh(&LocalStorage, dir, unknown_floor, &CancelToken::new()) {
        Ok(()) => Ok(follower.tree().clone()),
        Err(e) => Err(in_front(dir, Failure::Data(e.what))),
    }
}

/// Checks that the database in `dir` has a column family.
///
/// # Errors
/// Usage if there is none of that name.
pub fn require_family(dir: &Path, tree: &Tree, name: &[u8]) -> Result<(), Failure> {
    if tree.by_name(name).is_some() {
        return Ok(());
    }
    let known = tree.column_families.values();
    let known: Vec<_> = known.map(|family| names::escape(&family.name)).collect();
    Err(Failure::Usage(format!(
        "{}: there is no column family \"{}\", but {}",
        dir.display(),
        names::escape(name),
        known.join(", ")
    )))
}
