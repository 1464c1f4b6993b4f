//! The error of this crate: a description and an offset.

use std::borrow::Cow;
use std::fmt;

/// The action that an [`Error`] requires of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes are damaged, or do not have the claimed format.
    Corruption,
    /// The bytes may be sound, but use a feature that this crate does not support.
    Unsupported,
    /// The bytes may be sound, but their compression is not supported.
    UnsupportedCompression,
    /// The bytes may be sound, but are a table of a format other than the block-based one.
    OtherTable,
}

/// Reason why bytes could not be read.
///
/// `offset` counts from the start of the slice that the failing function got. A caller that knows the slice's offset in
/// a file adds it with [`Error::at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The action that it requires of the caller.
    pub kind: ErrorKind,
    /// Byte offset of the error.
    pub offset: u64,
    /// One clause that describes the error, without the offset.
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

    /// A feature that is not supported, at `offset`.
    pub fn unsupported(offset: impl TryInto<u64>, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            ..Self::corruption(offset, what)
        }
    }

    /// The same error relative to a container in which the slice starts at `base`.
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
