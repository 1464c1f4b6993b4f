//! From tables to rows: one run for each input, one order over all, and the visible entries.

pub mod checked;
pub mod decode;
mod filter;
pub mod groups;
pub mod merge;
pub mod operands;
pub mod retain;
pub mod snapshot;
