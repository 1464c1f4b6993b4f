//! From tables to rows: blocks are copied into an arena, decoded, merged into one order, and filtered by visibility.

mod again;
mod decode;
mod errors;
mod fragments;
mod groups;
mod host_blocks;
mod input;
mod keys;
mod operands;
mod retain;
mod rows;
mod size;
mod snapshot;
mod state;

pub use again::{Again, keep_read_again};
pub use errors::{FirstError, clear_errors, download_checked, error_in, longest_key};
pub use groups::{Grouping, verify};
pub use host_blocks::host_blocks;
pub use input::{Input, PADDING};
pub use keys::{KEY_PADDING, Spans, UserKeys, WORD_KEY_BYTES};
pub use rows::{SelectedRows, select_rows};
pub use size::{KEY_OVERHEAD, ReadSize, UNEVEN, share};
#[cfg(test)]
pub use state::Side;
pub use state::{ReadBuffers, ReadState};
