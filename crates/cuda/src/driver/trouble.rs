//! Errors that are neither the system's nor the driver's.

use rockmill_core::{Error, ErrorKind};

/// An error that says that another backend must do the job.
pub fn refused(what: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::Device,
        format!("the GPU backend does not do this yet: {}", what.into()),
    )
}

/// An error of what the device has made or sent back.
pub fn altered(what: &str) -> Error {
    Error::new(ErrorKind::Verification, format!("on the GPU: {what}"))
}
