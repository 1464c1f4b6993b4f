//! What a compaction would be.

use std::io::{self, Write};

use comfy_table::CellAlignment;
use rockmill_engine::{Expected, Forecast};
use serde::Serialize;

use super::Task;
use crate::advice::Decline;
use crate::outcome::Failure;
use crate::output::{self, megabytes};

/// Files of one level to merge.
#[derive(Debug, Serialize)]
struct Input {
    level: u32,
    files: u64,
    bytes: u64,
}

/// How Rockmill would do it.
#[derive(Debug, Serialize)]
struct Work {
    slices: u64,
    slices_at_once: u64,
    slice_memory_bytes: u64,
    /// Output files if no entry is dropped.
    output_files: u64,
    output_file_bytes: u64,
    /// Bits a key of the filters to write; `null` if there are to be none.
    filter_bits_per_key: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Plan {
    column_family: String,
    device: String,
    inputs: Vec<Input>,
    files: u64,
    bytes: u64,
    output_level: i32,
    accepted: bool,
    /// Why RocksDB would do it itself.
    decline: Option<Decline>,
    work: Option<Work>,
}

/// Prints the plan of a compaction.
///
/// # Errors
/// Environment if the output takes nothing.
pub fn print(task: &Task, forecast: &Forecast, json: bool) -> Result<(), Failure> {
    let plan = Plan::new(task, forecast);
    output::document_or_text(json, &plan, |out| Ok(plan.print_text(out)?))
}

impl Plan {
    fn new(task: &Task, forecast: &Forecast) -> Self {
        let inputs = forecast.inputs.iter().map(|level| Input {
            level: level.level,
            files: level.files,
            bytes: level.bytes,
        });
        let (work, decline) = match &forecast.verdict {
            Ok(expected) => (Some(Work::new(expected)), None),
            Err(error) => (None, Some(Decline::new(error))),
        };
        Self {
            column_family: task.column_family.clone(),
            device: task.device.to_string(),
            inputs: inputs.collect(),
            files: forecast.inputs.iter().map(|level| level.files).sum(),
            bytes: forecast.inputs.iter().map(|level| level.bytes).sum(),
            output_level: forecast.output_level,
            accepted: decline.is_none(),
            decline,
            work,
        }
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.files == 0 {
            return writeln!(out, "nothing to compact: no SST file holds such keys");
        }
        let mut table = output::table(["level", "files", "MB"]);
        for input in &self.inputs {
            let (level, files) = (input.level.to_string(), input.files.to_string());
            table.add_row([level, files, megabytes(input.bytes)]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        let (files, bytes, level) = (self.files, megabytes(self.bytes), self.output_level);
        writeln!(
            out,
            "to merge: {files} files of {bytes} MB, into level {level}"
        )?;
        if let Some(decline) = &self.decline {
            writeln!(
                out,
                "RocksDB would do it itself: {}: {}",
                decline.reason,
                decline.found()
            )?;
            writeln!(out, "to change that: {}", decline.change)?;
        }
        match &self.work {
            Some(work) => work.print_text(out, &self.device),
            None => Ok(()),
        }
    }
}

impl Work {
    fn new(expected: &Expected) -> Self {
        let bits = expected.filter_millibits_per_key;
        Self {
            slices: expected.slices,
            slices_at_once: expected.slices_at_once,
            slice_memory_bytes: expected.slice_memory_bytes,
            output_files: expected.output_files,
            output_file_bytes: expected.output_file_bytes,
            filter_bits_per_key: bits.map(|millibits| f64::from(millibits) / 1e3),
        }
    }

    fn print_text(&self, out: &mut dyn Write, device: &str) -> io::Result<()> {
        let (memory, size) = (self.slice_memory_bytes, self.output_file_bytes);
        writeln!(
            out,
            "Rockmill would do it on {device}: {} slices, {} at once, of {} MB of memory each",
            self.slices,
            self.slices_at_once,
            megabytes(memory)
        )?;
        let (files, size) = (self.output_files, megabytes(size));
        writeln!(out, "to write: at most some {files} files of {size} MB")?;
        match self.filter_bits_per_key {
            Some(bits) => writeln!(out, "filters: {bits} bits a key"),
            None => Ok(()),
        }
    }
}
