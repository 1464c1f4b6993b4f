//! The time of a compaction by stage, as a table.

use comfy_table::{CellAlignment, Table, presets};
use rockmill::{Resource, StageTime};
use rockmill_terminal::output::megabytes;
use serde::{Deserialize, Serialize};

use crate::energy::Energy;

/// A [`StageTime`] that may come from another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub stage: String,
    /// Resource that the stage uses.
    pub resource: Resource,
    /// Sum over subcompactions and threads.
    pub seconds: f64,
    /// Bytes that the stage moved.
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

/// Returns the differences of the stages between `before` and `after`.
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

/// Returns the bytes copied over the link to the device and back.
pub fn link_bytes(stages: &[Stage]) -> (u64, u64) {
    let over = |resource| {
        let of_link = stages.iter().filter(|stage| stage.resource == resource);
        of_link.map(|stage| stage.bytes).sum()
    };
    (over(Resource::ToDevice), over(Resource::FromDevice))
}

/// Describes the resources of a compaction other than time in one line.
pub fn summary(stages: &[Stage], cpu_s: f64, cpu_s_per_gb: f64, energy: Option<&Energy>) -> String {
    let (to, from) = link_bytes(stages);
    let energy = match energy {
        None => String::new(),
        Some(Energy::Joules(joules)) => format!("; GPU {joules:.1} J"),
        Some(Energy::Unknown(why)) => format!("; the GPU's energy is not known: {why}"),
    };
    format!(
        "PCIe {} MB to the device, {} MB back; host {cpu_s:.3} CPU-s, {cpu_s_per_gb:.3} per GB{energy}",
        megabytes(to),
        megabytes(from)
    )
}

/// Smaller times would be shown as zero.
const MIN_SHOWN_S: f64 = 0.000_05;

/// Makes a table with one line per stage: seconds summed over subcompactions and threads, their share of the wall time,
/// bytes moved and the rate of one thread or stream. Stages without work are omitted.
pub fn table(stages: &[Stage], wall_s: f64) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["stage", "resource", "s", "of wall", "MB", "GB/s"]);
    let shown = |stage: &&Stage| stage.seconds >= MIN_SHOWN_S || stage.bytes > 0;
    for stage in stages.iter().filter(shown) {
        let rate = match stage.bytes {
            bytes if bytes == 0 || stage.seconds == 0.0 => "-".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_adds_what_went_over_the_link() {
        let stage = |resource, bytes| Stage {
            stage: "copy".to_owned(),
            resource,
            seconds: 0.0,
            bytes,
        };
        let stages = [
            stage(Resource::ToDevice, 3_000_000),
            stage(Resource::Device, 5_000_000),
            stage(Resource::ToDevice, 1_000_000),
            stage(Resource::FromDevice, 2_000_000),
        ];
        assert_eq!(link_bytes(&stages), (4_000_000, 2_000_000));
        let line = summary(&stages, 0.5, 0.25, Some(&Energy::Joules(7.04)));
        let cpu = "host 0.500 CPU-s, 0.250 per GB";
        assert_eq!(
            line,
            format!("PCIe 4.0 MB to the device, 2.0 MB back; {cpu}; GPU 7.0 J")
        );
        let unknown = Energy::Unknown("no library".to_owned());
        assert!(summary(&stages, 0.5, 0.25, Some(&unknown)).ends_with("not known: no library"));
        assert!(summary(&[], 0.5, 0.25, None).ends_with(cpu));
        assert!(table(&stages, 1.0).to_string().contains(" - "));
        assert_eq!(table(&[stage(Resource::Device, 0)], 1.0).lines().count(), 1);
    }
}
