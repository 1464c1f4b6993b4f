//! How much memory a scan takes.

use super::latin1::MAX_CHARACTER_BYTES;
use super::strings::MAX_SPACES;
use super::{
    BATCH_BYTES, BATCH_ROWS, ColumnType, GROUP_BYTES, Instruction, Literal, ScanOutput, ScanPlan,
};
use crate::KeyRange;
use crate::table::InputTable;

impl ScanPlan {
    /// Host memory of the batch that is being made of rows of a range of some tables, and of groups.
    pub fn memory_bytes(&self, inputs: &[InputTable], range: &KeyRange) -> u64 {
        /// What an aggregate knows, or where a group's keys are and its places in a table of them.
        const STATE_BYTES: u64 = 64;
        /// A vector may have grown to twice what it holds.
        const GROWTH: u64 = 2;
        /// Some blocks have more rows than others, and compress better.
        const UNEVEN: u64 = 2;
        let sum = |of: fn(&InputTable) -> u64| {
            let in_range = |table: &InputTable| {
                let all = of(table);
                let share = table.share_in_range(range, all);
                share.saturating_mul(UNEVEN).min(all)
            };
            inputs.iter().map(in_range).fold(0, u64::saturating_add)
        };
        let rows = sum(|table| table.meta.properties.num_entries);
        let bytes = sum(|table| table.meta.properties.raw_bytes());
        let blocks = inputs.iter().map(InputTable::largest_block_bytes);
        let row = blocks.max().unwrap_or(0);
        let types = self.output.columns();
        let row_bytes: usize = types.iter().map(|stored| stored.row_bytes()).sum();
        let (most_rows, most_bytes) = match &self.output {
            ScanOutput::Rows(_) => (BATCH_ROWS as u64, BATCH_BYTES),
            ScanOutput::Groups(aggregation) => {
                (u64::from(aggregation.max_groups).max(1), GROUP_BYTES)
            }
        };
        let groups = rows.min(most_rows);
        let fixed = groups.saturating_mul(row_bytes as u64);
        let data = self.data_bytes(&types, most_bytes, rows, bytes, row);
        let batch = data.saturating_add(fixed).saturating_mul(GROWTH);
        let ScanOutput::Groups(aggregation) = &self.output else {
            return batch;
        };
        // Keys and values that are kept have as many bytes as the batch.
        let aggregates = aggregation.aggregates.len() as u64;
        let states = groups.saturating_mul(STATE_BYTES * (1 + aggregates));
        batch.saturating_add(states).saturating_mul(2)
    }

    /// Bytes of what `rows` rows of `bytes` bytes become, if all of them are wanted and each is a group. Spaces at the ends
    /// of strings are not counted.
    pub fn output_bytes(&self, rows: u64, bytes: u64) -> u64 {
        let types = self.output.columns();
        let rows = match &self.output {
            ScanOutput::Groups(aggregation) if aggregation.keys.is_empty() => return 0,
            _ => rows,
        };
        let row_bytes: usize = types.iter().map(|stored| stored.row_bytes()).sum();
        let fixed = rows.saturating_mul(row_bytes as u64);
        match types.contains(&ColumnType::Bytes) {
            true => fixed.saturating_add(bytes.saturating_mul(self.growth())),
            false => fixed,
        }
    }

    /// Whether some strings are longer than what is stored of them.
    pub fn pads(&self) -> bool {
        let pads = |instruction: &Instruction| {
            matches!(
                instruction,
                Instruction::String {
                    spaces: Some(_),
                    ..
                }
            )
        };
        self.instructions.iter().any(pads)
    }

    /// Most bytes of a string for each stored byte, spaces at its end aside.
    pub fn growth(&self) -> u64 {
        let is_latin1 = |instruction: &Instruction| matches!(instruction, Instruction::Latin1(_));
        match self.instructions.iter().any(is_latin1) {
            true => MAX_CHARACTER_BYTES,
            false => 1,
        }
    }

    /// Maximum bytes of byte columns in a batch of `rows` rows with `bytes` bytes together, of which the largest has at
    /// most `row`. A batch has at most `most` bytes, unless a single row has more.
    pub fn data_bytes(
        &self,
        types: &[ColumnType],
        most: usize,
        rows: u64,
        bytes: u64,
        row: u64,
    ) -> u64 {
        let columns = types.iter().filter(|stored| **stored == ColumnType::Bytes);
        let columns = columns.count() as u64;
        let literal = |instruction: &Instruction| match instruction {
            Instruction::Constant(Literal::Bytes(bytes)) => bytes.len() as u64,
            _ => 0,
        };
        let literal = self.instructions.iter().map(literal).max().unwrap_or(0);
        let grown = |bytes: u64| bytes.saturating_mul(self.growth());
        let (bytes, row) = (grown(bytes), grown(row));
        // Bytes of a row's values that are not in the row.
        let more = literal + if self.pads() { MAX_SPACES as u64 } else { 0 };
        let all = rows.saturating_mul(more).saturating_add(bytes);
        let largest = row.saturating_add(more).saturating_mul(columns);
        (all.saturating_mul(columns)).min(largest.max(most as u64))
    }
}
