//! Where the time of a compaction went, as a table.

use comfy_table::{CellAlignment, Table, presets};
use rockmill::StageTime;

/// A line a stage: seconds summed over slices and threads, their share of the wall time, bytes moved and
/// the rate of one thread or stream.
pub fn table(stages: &[StageTime], wall_s: f64) -> Table {
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
            stage.stage.to_owned(),
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
