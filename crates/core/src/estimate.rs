//! Estimates the size of an output file before it is written.

use crate::plan::OutputPlan;
use crate::table::InputTable;

/// The most that an output file has to be expected to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEstimate {
    /// Entries.
    pub entries: u64,
    /// Memory of its index, bytes.
    pub index_bytes: u64,
}

impl FileEstimate {
    /// Assumes that a file gets the same share of the inputs' entries and indexes as of their bytes. It may become
    /// twice its target size.
    pub fn new(plan: &OutputPlan, inputs: &[InputTable]) -> Self {
        const OVERSIZE: u64 = 2;
        let sum = |of: fn(&InputTable) -> u64| inputs.iter().map(of).fold(0, u64::saturating_add);
        let bytes = sum(|table| table.meta.properties.data_size).max(1);
        let file_bytes = if plan.splitting.single_file {
            bytes
        } else {
            bytes.min(plan.splitting.max_output_file_size.saturating_mul(OVERSIZE))
        };
        let share =
            |total: u64| (u128::from(total) * u128::from(file_bytes) / u128::from(bytes)) as u64;
        Self {
            entries: share(sum(|table| table.meta.properties.num_entries)),
            index_bytes: share(sum(InputTable::index_memory_bytes)),
        }
    }
}
