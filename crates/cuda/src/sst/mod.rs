//! From rows to SST files: laid out, written and sealed on the device, decoded again, and copied back.

mod buffers;
mod compress;
mod cuts;
mod data_check;
mod filter;
mod images;
mod index;
mod layout;
mod output;
mod parts;
mod size;
mod store;
mod validation_hash;
mod verify;

pub use buffers::SstBuffers;
pub use compress::HOST_COMPRESSION_BYTES_PER_BLOCK;
pub use layout::uncompressed_file_size;
pub use output::{Writing, write};
pub use size::SstSize;
pub use store::WRITERS;
