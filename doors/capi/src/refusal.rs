//! The reason why a call did not succeed.

use crate::Status;

/// A status other than success, and one sentence.
#[derive(Debug)]
pub struct Refusal {
    /// The return value of the call.
    pub status: Status,
    /// What `*error` becomes.
    pub sentence: String,
}

impl Refusal {
    /// The call was wrong.
    pub fn invalid(sentence: impl Into<String>) -> Self {
        Self {
            status: Status::Invalid,
            sentence: sentence.into(),
        }
    }

    /// RocksDB does the job itself.
    pub fn use_local(error: &rockmill_core::Error) -> Self {
        Self {
            status: Status::UseLocal,
            sentence: error.to_string(),
        }
    }

    /// The library failed, or a device that was named cannot be used.
    pub fn failure(sentence: impl Into<String>) -> Self {
        Self {
            status: Status::Failure,
            sentence: sentence.into(),
        }
    }
}
