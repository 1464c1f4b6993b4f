//! Tables of keys and values that stay on the device: tasks store rows, and kernels look keys up.

mod budget;
mod delta;
mod in_use;
mod insert;
mod lookup;
mod ranges;
mod revise;
mod table;

pub(crate) use budget::Part;
pub use delta::{Delta, Unseen};
pub use in_use::InUse;
pub use insert::{InsertBuffers, insert};
pub use lookup::{CallerStream, IdForm, Integer, Keys, LookupResult, Rows, Unanswered};
pub use table::{DeviceTable, TableContents, TableSettings};
