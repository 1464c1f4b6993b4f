//! Plan of a compaction.

use std::io::{self, Write};

use comfy_table::CellAlignment;
use rockmill_compaction::{Expected, Forecast, ForecastStep};
use rockmill_format::names;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::refusal::Refusal;
use super::task::Task;
use crate::advice::Decline;

/// Message if no file overlaps the keys.
pub const NOTHING: &str = "nothing to compact: no SST file holds such keys";

/// Files of one level to merge.
#[derive(Debug, Serialize)]
struct Input {
    level: u32,
    files: u64,
    bytes: u64,
}

/// How Rockmill would do a step.
#[derive(Debug, Serialize)]
struct Work {
    subcompactions: u64,
    subcompactions_at_once: u64,
    subcompaction_memory_bytes: u64,
    /// Stored size of the data blocks to read, in bytes.
    bytes_to_read: u64,
    /// Number of output files if no entry is dropped.
    output_files: u64,
    output_file_bytes: u64,
    /// Bits per key of the filters to write; `null` if none are written.
    filter_bits_per_key: Option<f64>,
}

/// A merge into one level.
#[derive(Debug, Serialize)]
struct Step {
    inputs: Vec<Input>,
    /// Size of earlier steps' results, if no entry is dropped.
    earlier_bytes: u64,
    output_level: i32,
    /// Approximate, where RocksDB cuts a step.
    jobs: u64,
    accepted: bool,
    /// All reasons why RocksDB would do the step itself.
    declines: Vec<Decline>,
    work: Option<Work>,
}

#[derive(Debug, Serialize)]
struct Plan {
    column_family: String,
    device: String,
    files: u64,
    bytes: u64,
    /// Whether the command would compact the database and Rockmill would do all of it.
    accepted: bool,
    /// All reasons why the command would leave the database alone.
    refusals: Vec<Refusal>,
    /// All reasons why RocksDB would do some step itself.
    declines: Vec<Decline>,
    steps: Vec<Step>,
}

/// Prints the plan of a compaction, or why the database would be left alone.
///
/// # Errors
/// The command's failure if it would leave the database alone; Environment if the output cannot be written.
pub fn print(
    task: &Task,
    forecast: &Forecast,
    refusals: Vec<Refusal>,
    json: bool,
) -> Result<(), Failure> {
    let plan = Plan::new(task, forecast, refusals);
    output::document_or_text(json, &plan, |out| Ok(plan.print_text(out)?))?;
    Refusal::foretold(&task.dir, &plan.refusals).map_or(Ok(()), Err)
}

impl Plan {
    fn new(task: &Task, forecast: &Forecast, refusals: Vec<Refusal>) -> Self {
        let steps: Vec<_> = forecast.steps.iter().map(Step::new).collect();
        let inputs = || steps.iter().flat_map(|step| &step.inputs);
        Self {
            column_family: names::escape(task.column_family.as_bytes()),
            device: task.device.to_string(),
            files: inputs().map(|input| input.files).sum(),
            bytes: inputs().map(|input| input.bytes).sum(),
            accepted: refusals.is_empty() && forecast.is_accepted(),
            refusals,
            declines: Decline::all(&forecast.found()),
            steps,
        }
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.steps.is_empty() {
            writeln!(out, "{NOTHING}")?;
        } else {
            self.print_steps(out)?;
        }
        if !self.refusals.is_empty() {
            writeln!(out, "\nthe database would be left alone")?;
        }
        for refusal in &self.refusals {
            writeln!(out, "  {}", refusal.line())?;
        }
        Ok(())
    }

    fn print_steps(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_inputs(out)?;
        let (files, bytes) = (self.files, megabytes(self.bytes));
        writeln!(out, "to merge: {files} files of {bytes} MB\n")?;
        self.print_work(out)?;
        let mut works = self.steps.iter().filter_map(|step| step.work.as_ref());
        if let Some(first) = works.next() {
            writeln!(out, "Rockmill on {}", self.device)?;
            if let Some(bits) = first.filter_bits_per_key {
                writeln!(out, "filters: {bits} bits a key")?;
            }
        }
        if !self.declines.is_empty() {
            writeln!(out, "\nwhy RocksDB would do it")?;
        }
        self.declines
            .iter()
            .try_for_each(|decline| decline.print(out))
    }

    fn print_inputs(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = output::table(["step", "level", "files", "MB", "into level"]);
        for (number, step) in (1..).zip(&self.steps) {
            let (number, into) = (format!("{number}"), step.output_level.to_string());
            for input in &step.inputs {
                let (level, files) = (input.level.to_string(), input.files.to_string());
                let bytes = megabytes(input.bytes);
                table.add_row([number.clone(), level, files, bytes, into.clone()]);
            }
            if step.earlier_bytes > 0 {
                let bytes = megabytes(step.earlier_bytes);
                let (level, files) = ("earlier steps".to_owned(), String::new());
                table.add_row([number.clone(), level, files, bytes, into]);
            }
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")
    }

    fn print_work(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = output::table([
            "step",
            "done by",
            "jobs",
            "subcompactions",
            "at once",
            "memory MB",
            "read MB",
            "files",
            "MB each",
        ]);
        for (number, step) in (1..).zip(&self.steps) {
            let (number, jobs) = (format!("{number}"), step.jobs.to_string());
            let Some(work) = &step.work else {
                table.add_row([number, "RocksDB".to_owned(), jobs]);
                continue;
            };
            table.add_row([
                number,
                "Rockmill".to_owned(),
                jobs,
                work.subcompactions.to_string(),
                work.subcompactions_at_once.to_string(),
                megabytes(work.subcompaction_memory_bytes * work.subcompactions_at_once),
                megabytes(work.bytes_to_read),
                format!("<= {}", work.output_files),
                megabytes(work.output_file_bytes),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")
    }
}

impl Step {
    fn new(forecast: &ForecastStep) -> Self {
        let inputs = forecast.inputs.iter().map(|level| Input {
            level: level.level,
            files: level.files,
            bytes: level.bytes,
        });
        let (work, declines) = match &forecast.verdict {
            Ok(expected) => (Some(Work::new(expected)), Vec::new()),
            Err(errors) => (None, Decline::all(errors)),
        };
        Self {
            inputs: inputs.collect(),
            earlier_bytes: forecast.earlier_bytes,
            output_level: forecast.output_level,
            jobs: forecast.jobs,
            accepted: work.is_some(),
            declines,
            work,
        }
    }
}

impl Work {
    fn new(expected: &Expected) -> Self {
        let bits = expected.filter_millibits_per_key;
        Self {
            subcompactions: expected.subcompactions,
            subcompactions_at_once: expected.subcompactions_at_once,
            subcompaction_memory_bytes: expected.subcompaction_memory_bytes,
            bytes_to_read: expected.bytes,
            output_files: expected.output_files,
            output_file_bytes: expected.output_file_bytes,
            filter_bits_per_key: bits.map(|millibits| f64::from(millibits) / 1e3),
        }
    }
}
