//! From rows to SST files, each block of which is decoded again before it is written.

mod checked;
pub mod dictionary;
pub mod split;
pub mod writer;
