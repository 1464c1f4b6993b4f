//! What Rockmill's commands print, and how they start and end.

#![forbid(unsafe_code)]

pub mod outcome;
pub mod output;
pub mod program;
pub mod removed;
