//! The error of jobs: few kinds, each with one consequence for the job.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use rockmill_format as format;
use rockmill_format::key::ValueType;

use crate::decline::DeclineReason;

/// The meaning of an [`Error`] for the job. In every case RocksDB compacts locally and nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The job needs something that Rockmill does not do exactly. Not a fault.
    Declined(DeclineReason),
    /// An input is damaged. RocksDB will find and report it when it compacts locally.
    Corruption,
    /// The operating system reports an error: a missing file, no permission, a full disk.
    Storage,
    /// Finished output did not pass verification; its files were deleted.
    Verification,
    /// The device is missing, or has failed. Another device can do the job.
    Device,
    /// The device cannot do this job, and another device can. Not a fault.
    Unsupported,
    /// The database is closing.
    Cancelled,
    /// A result of a scan exceeds its type, on every device.
    OutOfRange,
    /// An argument of the caller is wrong, and nothing was done.
    Invalid,
    /// Rockmill broke one of its own rules. Please report it.
    Internal,
}

impl ErrorKind {
    /// The kind's name in statistics; for declined jobs, the reason's.
    pub fn code(self) -> &'static str {
        match self {
            Self::Declined(reason) => reason.code(),
            Self::Cancelled => DeclineReason::ShuttingDown.code(),
            Self::Corruption => "corruption",
            Self::Storage => "storage",
            Self::Verification => "verification",
            Self::Device => "device",
            Self::Unsupported => "unsupported",
            Self::OutOfRange => "out-of-range",
            Self::Invalid => "invalid",
            Self::Internal => "internal",
        }
    }

    /// Whether the memory budget, or a device's memory, is too small.
    pub fn is_out_of_memory(self) -> bool {
        self == Self::Declined(DeclineReason::MemoryBudget)
    }
}

/// Why a job did not finish, with the file and offset where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Its meaning for the job.
    pub kind: ErrorKind,
    /// Name of the file concerned.
    pub file: Option<String>,
    /// Byte offset in `file`.
    pub offset: Option<u64>,
    /// One clause with the cause.
    pub what: String,
}

/// Result of working on a job.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a file and offset.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            file: None,
            offset: None,
            what: what.into(),
        }
    }

    /// A declined job.
    pub fn declined(reason: DeclineReason, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Declined(reason), what)
    }

    /// Declined, because of an entry of a type that does not determine the value alone.
    pub fn declined_type(kind: ValueType) -> Self {
        let what = format!("an entry of type {}", kind.name());
        match DeclineReason::of_type(kind) {
            Some(reason) => Self::declined(reason, what),
            None => Self::internal(what),
        }
    }

    /// A damaged input.
    pub fn corruption(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            offset: Some(offset),
            ..Self::new(ErrorKind::Corruption, what)
        }
    }

    /// The error of a system call on `file`.
    pub fn storage(file: &str, doing: &str, error: &std::io::Error) -> Self {
        Self {
            file: Some(file.to_owned()),
            ..Self::new(ErrorKind::Storage, format!("cannot {doing}: {error}"))
        }
    }

    /// The database is closing.
    pub fn cancelled() -> Self {
        Self::new(
            ErrorKind::Cancelled,
            "cancelled because the database is closing",
        )
    }

    /// An error for a broken invariant of Rockmill.
    pub fn internal(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, what)
    }

    /// An error of the format crate, in `file`.
    pub fn format(file: &str, error: format::Error) -> Self {
        let kind = match error.kind {
            format::ErrorKind::Corruption => ErrorKind::Corruption,
            format::ErrorKind::Unsupported => ErrorKind::Declined(DeclineReason::UnsupportedFormat),
            format::ErrorKind::UnsupportedCompression => {
                ErrorKind::Declined(DeclineReason::Compression)
            }
            format::ErrorKind::OtherTable => ErrorKind::Declined(DeclineReason::TableFactory),
        };
        Self {
            file: Some(file.to_owned()),
            offset: Some(error.offset),
            ..Self::new(kind, error.what)
        }
    }

    /// The same error, in `file` if it names no file yet.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// The same error, whose file has its path. Without a file, it is one of the directory.
    #[must_use]
    pub fn in_directory(mut self, dir: &Path) -> Self {
        let of_dir = dir.file_name().map(OsStr::to_string_lossy);
        let name = self.file.take();
        let name = name.filter(|name| of_dir.as_deref() != Some(name));
        let path = name.map_or_else(|| dir.to_owned(), |name| dir.join(name));
        self.in_file(&path.display().to_string())
    }

    /// The same error as a fault of Rockmill's own output.
    #[must_use]
    pub fn as_verification(self) -> Self {
        Self {
            kind: match self.kind {
                ErrorKind::Corruption | ErrorKind::Declined(_) => ErrorKind::Verification,
                kind => kind,
            },
            ..self
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ErrorKind::Declined(reason) = self.kind {
            write!(f, "declined ({}): ", reason.code())?;
        }
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.what)?;
        if let Some(offset) = self.offset {
            write!(f, " (at offset {offset})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
