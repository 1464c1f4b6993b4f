//! Where the time of a compaction went, as a table.

use comfy_table::{CellAlignment, Table, presets};
use rockmill::{Resource, StageTime};
use serde::{Deserialize, Serialize};

/// A [`StageTime`] that may have come from another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub stage: String,
    pub resource: Resource,
    pub seconds: f64,
    pub bytes: u64,
}

impl From<&StageTime> for Stage {
    fn from(stage: &StageTime) -> Self {
        Self {
            stage: stage.stage.to_owned(),
            resource: stage.resource,
            seconds: stage.seconds,
            bytes: stage.bytes,
        }
    }
}

/// What the stages took after `before`.
pub fn since(before: &[StageTime], after: &[StageTime]) -> Vec<Stage> {
    let since = |stage: &StageTime| {
        let earlier = before.iter().find(|known| known.stage == stage.stage);
        Stage {
            seconds: stage.seconds - earlier.map_or(0.0, |e| e.seconds),
            bytes: stage.bytes - earlier.map_or(0, |e| e.bytes),
            ..Stage::from(stage)
        }
    };
    after.iter().map(since).collect()
}

/// A line a stage: seconds summed over slices and threads, their share of the wall time, bytes moved and
/// the rate of one thread or stream.
pub fn table(stages: &[Stage], wall_s: f64) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["stage", "resource", "s", "of wall", "MB", "GB/s"]);
    for stage in stages {
        let rate = match stage.bytes {
            0 => "-".to_owned(),
            bytes => format!("{:.1}", bytes as f64 / 1e9 / stage.seconds),
        };
        table.add_row([
            stage.stage.clone(),
            stage.resource.name().to_owned(),
            format!("{:.4}", stage.seconds),
            format!("{:.1} %", 100.0 * stage.seconds / wall_s),
            format!("{:.1}", stage.bytes as f64 / 1e6),
            rate,
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
