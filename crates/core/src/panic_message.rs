//! The text of a panic.

use std::any::Any;

/// What a panic says, if it is a text.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> Option<&str> {
    let formatted = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(formatted)
}
