//! Output, start and end of Rockmill's commands.

#![forbid(unsafe_code)]

pub mod outcome;
pub mod output;
pub mod program;
pub mod signals;
