//! Folders for databases that go away at the end.

use std::path::Path;

use crate::scratch_dir::Scratch;
use rockmill_terminal::outcome::Failure;

/// Lets `work` use a folder for databases, which then goes away, in `parent` or where the system has its temporary files.
/// What a command left there that was killed goes before.
///
/// # Errors
/// Environment if there can be no folder; those of `work`.
pub fn in_scratch<T>(
    parent: Option<&Path>,
    work: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let scratch = Scratch::new(&parent).map_err(|error| {
        Failure::Environment(format!("{error}; name another folder with --dir"))
    })?;
    work(scratch.path()).map_err(|failure| advise_room(failure, &parent))
}

/// What to do about a failure for want of room in `parent`, behind it.
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
