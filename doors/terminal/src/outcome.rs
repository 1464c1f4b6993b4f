//! Failures of a command.

use std::path::Path;
use std::{fmt, io};

use rockmill_core::{DeclineReason, Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// Exit codes of commands that read files.
pub const EXIT_CODES: &str = "Exit codes: 0 all is sound, 1 something is bad, 2 wrong usage, 3 the environment \
    refused, 4 what could be read is sound, and some could not be, which is named.";

/// Why a command failed; it determines the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The data is damaged, or uses something that is not supported.
    Data(String),
    /// Everything that was checked or shown is sound, but a part could not be.
    Incomplete(String),
    /// The command was called incorrectly.
    Usage(String),
    /// The system refused: a missing file, no permission, a full disk.
    Environment(String),
    /// A signal has ended the command, which has removed its unfinished files.
    Stopped {
        /// Sentence about what is left.
        what: String,
        /// Number of the signal.
        signal: u8,
    },
}

/// Shells add this to the number of the signal that has ended a process.
const OF_SIGNALS: u8 = 128;

impl Failure {
    /// The process's exit code; success is 0.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Data(_) => 1,
            Self::Incomplete(_) => 4,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Stopped { signal, .. } => OF_SIGNALS + signal,
        }
    }

    /// Makes the failure of a path that the user has named.
    pub fn of_path(path: &Path, error: &io::Error) -> Self {
        let (path, why) = (path.display(), refusal(error));
        let advice = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "; check the path",
            _ => "",
        };
        Self::Environment(format!("{path}: {why}{advice}"))
    }

    /// Makes the failure of reading an opened file. A part that is not understood is not an error in the data. Errors
    /// of opening a file are different: damage to the structures that locate its parts can look the same.
    pub fn of_file(error: Error) -> Self {
        match error.kind {
            ErrorKind::Declined(_) => Self::Incomplete(placed("", &error)),
            _ => error.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Data(what)
        | Self::Incomplete(what)
        | Self::Usage(what)
        | Self::Environment(what)
        | Self::Stopped { what, .. }) = self;
        f.write_str(what)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind {
            ErrorKind::Corruption | ErrorKind::Verification | ErrorKind::OutOfRange => {
                Self::Data(error.to_string())
            }
            ErrorKind::Declined(DeclineReason::InputMissing) => {
                Self::Environment(placed("", &error))
            }
            ErrorKind::Declined(
                DeclineReason::Manifest | DeclineReason::OptionsFile | DeclineReason::NewerRocksDb,
            ) => Self::Data(placed("", &error)),
            // No damage makes a table look like one of another format.
            ErrorKind::Declined(DeclineReason::TableFactory) => {
                Self::Incomplete(placed("not read: ", &error))
            }
            // For the engine, a declined job is normal. But a user who asks for one file wants to know which part is
            // not supported.
            ErrorKind::Declined(_) => Self::Data(placed("not supported: ", &error)),
            ErrorKind::Storage
            | ErrorKind::Device
            | ErrorKind::Unsupported
            | ErrorKind::Cancelled => Self::Environment(error.to_string()),
            ErrorKind::Invalid => Self::Usage(error.to_string()),
            ErrorKind::Internal => {
                Self::Environment(format!("internal error, please report it: {error}"))
            }
        }
    }
}

/// Why the system refuses a path, and what to do.
pub fn refusal(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::NotADirectory => "there is a file in place of a folder".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "this user has no permission; run the command as the owner".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Describes an error with file and offset, without the engine's name for its kind.
fn placed(prefix: &str, error: &Error) -> String {
    let file = error.file.as_ref().map(|file| format!("{file}: "));
    let place = error.offset.map(|offset| format!(" (at offset {offset})"));
    format!(
        "{}{prefix}{}{}",
        file.unwrap_or_default(),
        error.what,
        place.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let refused = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let unsupported = Error::declined(DeclineReason::Comparator, "comparator X");
        for (error, code) in [
            (Error::corruption("a.sst", 7, "bad"), 1),
            (Error::corruption("a.sst", 7, "bad").as_verification(), 1),
            (unsupported, 1),
            (Error::declined(DeclineReason::Manifest, "torn"), 1),
            (Error::declined(DeclineReason::InputMissing, "gone"), 3),
            (
                Error::declined(DeclineReason::TableFactory, "PlainTable"),
                4,
            ),
            (Error::storage("a.sst", "open it", &refused), 3),
            (Error::cancelled(), 3),
            (Error::internal("bug"), 3),
        ] {
            assert_eq!(Failure::from(error.clone()).exit_code(), code, "{error}");
        }
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        let unsupported = Error::declined(DeclineReason::UnsupportedFormat, "format_version 9");
        assert_eq!(Failure::of_file(unsupported).exit_code(), 4);
        let damaged = Error::corruption("a.sst", 7, "bad");
        assert_eq!(Failure::of_file(damaged).exit_code(), 1);
    }

    #[test]
    fn the_failure_of_a_path_says_what_to_do() {
        let of = |kind: io::ErrorKind| Failure::of_path(Path::new("db/a"), &kind.into());
        for (kind, what) in [
            (
                io::ErrorKind::NotFound,
                "db/a: there is no such file or folder; check the path",
            ),
            (
                io::ErrorKind::NotADirectory,
                "db/a: there is a file in place of a folder; check the path",
            ),
            (
                io::ErrorKind::PermissionDenied,
                "db/a: this user has no permission; run the command as the owner",
            ),
        ] {
            assert_eq!(of(kind).to_string(), what);
        }
    }

    #[test]
    fn the_message_names_file_and_offset() {
        let damaged = Error::corruption("a.sst", 7, "bad block");
        assert_eq!(
            Failure::from(damaged).to_string(),
            "a.sst: bad block (at offset 7)"
        );
        let unsupported = rockmill_format::Error::unsupported(5, "format_version 9");
        assert_eq!(
            Failure::from(Error::format("a.sst", unsupported)).to_string(),
            "a.sst: not supported: format_version 9 (at offset 5)"
        );
        let torn = Error::declined(DeclineReason::Manifest, "torn").in_file("MANIFEST-000005");
        assert_eq!(Failure::from(torn).to_string(), "MANIFEST-000005: torn");
    }
}
