//! Tables to rows: one run an input, one order over all, and what is visible of it.

pub mod decode;
mod filter;
pub mod merge;
pub mod operands;
pub mod retain;
pub mod snapshot;
