//! Tables of keys and values that stay on the device: tasks store rows, and kernels look keys up.

mod budget;
mod delta;
mod in_use;
mod lookup;
mod place;
mod ranges;
mod revise;
mod table;

pub(crate) use budget::Part;
pub use delta::{Delta, Unseen};
pub use in_use::InUse;
pub use lookup::{Answer, CallerStream, IdForm, Integer, Keys, Rows, Unanswered};
pub use place::{PlaceBuffers, place};
pub use table::{DeviceTable, TableContents, TableSettings};
