//! Folders for databases that are removed at the end.

use std::path::Path;

use crate::scratch_dir::Scratch;
use rockmill_terminal::outcome::{Failure, refusal};

/// Runs `work` with a temporary folder for databases, in `parent` or in the system's folder for temporary files. First
/// removes the folders that killed commands left there.
///
/// # Errors
/// Environment if the folder cannot be made; the errors of `work`.
pub fn in_scratch<T>(
    parent: Option<&Path>,
    work: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    if let Err(e) = std::fs::metadata(parent.join(".")) {
        let (parent, why) = (parent.display(), refusal(&e));
        return Err(Failure::Environment(format!(
            "{parent}: {why}; make it, or name another folder with --dir"
        )));
    }
    let scratch = Scratch::new(&parent).map_err(|error| {
        Failure::Environment(format!("{error}; name another folder with --dir"))
    })?;
    work(scratch.path()).map_err(|failure| advise_room(failure, &parent))
}

/// Adds advice to a failure because `parent` has no space left.
pub fn advise_room(failure: Failure, parent: &Path) -> Failure {
    match failure {
        Failure::Environment(what) if what.contains("No space left on device") => {
            let parent = parent.display();
            let advice = format!("make room in {parent} or name another with --dir");
            Failure::Environment(format!("{what}; {advice}"))
        }
        other => other,
    }
}
