//! Errors of neither the system nor the driver.

use rockmill_core::{Error, ErrorKind};

/// The error of a job that another backend must do.
pub fn refused(what: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the GPU backend does not support this yet: {}", what.into()),
    )
}

/// An error in data that the device has computed or sent back.
pub fn altered(what: &str) -> Error {
    Error::new(ErrorKind::Verification, format!("on the GPU: {what}"))
}
