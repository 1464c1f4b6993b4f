//! The one error of this crate: what is wrong, and at which offset.

use std::borrow::Cow;
use std::fmt;

/// What a caller must do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes are damaged, or are not what they claim to be.
    Corruption,
    /// The bytes may be sound, but use a feature that this crate does not read or write.
    Unsupported,
    /// The bytes may be sound, but are compressed in a way that is not handled.
    UnsupportedCompression,
    /// The bytes may be sound, but are a table of another format than the block-based one.
    OtherTable,
}

/// Why some bytes could not be read.
///
/// `offset` counts from the start of the slice that the failing function was given; a caller that
/// knows where the slice lies in a file adds that with [`Error::at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// Byte offset of the trouble.
    pub offset: u64,
    /// One clause that says what is wrong, without the offset.
    pub what: Cow<'static, str>,
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Damaged bytes at `offset`.
    pub fn corruption(offset: impl TryInto<u64>, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ErrorKind::Corruption,
            offset: offset.try_into().unwrap_or(u64::MAX),
            what: what.into(),
        }
    }

    /// A feature that is not handled, at `offset`.
    pub fn unsupported(offset: impl TryInto<u64>, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            ..Self::corruption(offset, what)
        }
    }

    /// The same error seen from a container in which the slice starts at `base`.
    #[must_use]
    pub fn at(self, base: u64) -> Self {
        Self {
            offset: self.offset.saturating_add(base),
            ..self
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at offset {})", self.what, self.offset)
    }
}

impl std::error::Error for Error {}
