//! Rows to SST files, each block of which is decoded again before it goes.

mod checked;
pub mod split;
pub mod writer;
