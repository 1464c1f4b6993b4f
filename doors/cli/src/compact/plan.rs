//! Plan of the compactions.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::CellAlignment;
use rockmill_compaction::{Expected, ForecastStep};
use rockmill_format::names;
use rockmill_snapshot::manual::UserKeys;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::decision::Decision;
use super::refusal::Refusal;
use super::task::{SelectedFamily, Task};
use crate::advice::Decline;

/// Columns of the table of work that a narrow terminal does not show, by position.
const SPARED: [usize; 4] = [6, 5, 4, 8];

/// Begin of the sentence of a column family that has nothing to compact.
const NOTHING: &str = "nothing to compact: ";

/// Why no file is compacted.
fn no_files(keys: &UserKeys) -> &'static str {
    match keys {
        UserKeys {
            from: None,
            to: None,
        } => "there is no SST file",
        _ => "no SST file holds such keys",
    }
}

/// The sentence of a column family that has nothing to compact.
pub fn nothing(keys: &UserKeys) -> String {
    format!("{NOTHING}{}", no_files(keys))
}

/// Message if the write-ahead log has entries, which no file of the plan has.
const LOGGED: &str = "the write-ahead log has entries: those of this column family are written to level 0 first, and are \
    compacted if they are among the keys";

/// Files of one level to merge.
#[derive(Debug, Serialize)]
struct Input {
    level: u32,
    files: u64,
    bytes: u64,
}

/// Rockmill's work for a step.
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
    /// Approximate if RocksDB cuts a step.
    jobs: u64,
    accepted: bool,
    /// All reasons why RocksDB would do the step itself.
    declines: Vec<Decline>,
    work: Option<Work>,
}

/// Plan for one column family.
#[derive(Debug, Serialize)]
struct Family {
    name: String,
    files: u64,
    bytes: u64,
    /// Whether it would be compacted if it has work, and Rockmill would do all of it.
    accepted: bool,
    /// Whether its files are compacted already, so that nothing would be done without `--force`.
    compacted_already: bool,
    /// All reasons why RocksDB would do some step itself.
    declines: Vec<Decline>,
    steps: Vec<Step>,
    #[serde(skip)]
    device: String,
}

#[derive(Debug, Serialize)]
struct Plan {
    device: String,
    /// Whether the command would compact all column families, and Rockmill would do all of it.
    accepted: bool,
    /// All reasons why the command would refuse the database or column families.
    refusals: Vec<Refusal>,
    /// Whether the write-ahead log has entries. Those of a column family are written to level 0 before the steps.
    log_has_entries: bool,
    column_families: Vec<Family>,
    /// Why a column family without steps has none.
    #[serde(skip)]
    no_files: &'static str,
}

/// Prints the plan of the compactions, or the parts that would be left alone with the reasons.
///
/// # Errors
/// The command's failure if it would leave a part alone, or a file is damaged; Environment if the output cannot be written.
pub fn print(task: &Task, decision: Decision, json: bool) -> Result<(), Failure> {
    let plan = Plan::new(task, decision);
    output::document_or_text(json, &plan, |out| Ok(plan.print_text(out)?))?;
    let what = plan.left_alone();
    let refused = Refusal::foretold(&task.dir, &what, &plan.refusals);
    let damage = || {
        let mut families = task.families.iter();
        families.find_map(|family| family.damage(&task.dir))
    };
    refused.or_else(damage).map_or(Ok(()), Err)
}

impl Plan {
    fn new(task: &Task, decision: Decision) -> Self {
        let family = |selected: &SelectedFamily| Family::new(task, &decision, selected);
        let families: Vec<_> = task.families.iter().map(family).collect();
        Self {
            device: task.device.to_string(),
            accepted: families.iter().all(|family| family.accepted),
            log_has_entries: decision.log_has_entries,
            refusals: decision.refusals,
            column_families: families,
            no_files: no_files(&task.keys),
        }
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let several = self.column_families.len() > 1;
        for family in &self.column_families {
            if several {
                writeln!(out, "column family {}", family.name)?;
            }
            match (family.steps.is_empty(), self.log_has_entries) {
                (true, false) => writeln!(out, "{NOTHING}{}", self.no_files)?,
                (true, true) => writeln!(out, "{}", self.no_files)?,
                _ if family.compacted_already => {
                    writeln!(out, "compacted already; --force compacts it again")?;
                }
                _ => family.print(out)?,
            }
            if several {
                writeln!(out)?;
            }
        }
        if self.log_has_entries {
            writeln!(out, "{}", output::wrapped(LOGGED))?;
        }
        if !self.refusals.is_empty() {
            writeln!(out, "\n{} would be left alone", self.left_alone())?;
        }
        for refusal in &self.refusals {
            writeln!(out, "{}", output::indented(&refusal.line(), 2))?;
        }
        Ok(())
    }

    /// The parts that the refusals concern.
    fn left_alone(&self) -> String {
        let is_of_one = |refusal: &Refusal| refusal.is_of_one_family;
        if !self.refusals.iter().all(is_of_one) {
            return "the database".to_owned();
        }
        let names = self
            .refusals
            .iter()
            .filter_map(|r| r.column_family.as_deref());
        let names: BTreeSet<_> = names.collect();
        let names: Vec<_> = names.into_iter().collect();
        match names.as_slice() {
            [name] => format!("column family {name}"),
            names => format!("column families {}", names.join(", ")),
        }
    }
}

impl Family {
    fn new(task: &Task, decision: &Decision, selected: &SelectedFamily) -> Self {
        let forecast = &selected.forecast;
        let steps: Vec<_> = forecast.steps.iter().map(Step::new).collect();
        let inputs = || steps.iter().flat_map(|step| &step.inputs);
        let name = names::escape(selected.name.as_bytes());
        let is_refused = |refusal: &Refusal| {
            !refusal.is_of_one_family || refusal.column_family.as_ref() == Some(&name)
        };
        Self {
            files: inputs().map(|input| input.files).sum(),
            bytes: inputs().map(|input| input.bytes).sum(),
            accepted: forecast.is_accepted() && !decision.refusals.iter().any(is_refused),
            compacted_already: forecast.is_compacted && !task.force && !decision.log_has_entries,
            declines: Decline::all(&forecast.found()),
            steps,
            device: task.device.to_string(),
            name,
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_inputs(out)?;
        let (files, bytes) = (self.files as usize, megabytes(self.bytes));
        let files = output::count(files, "file", "files");
        writeln!(out, "to merge: {files} of {bytes} MB\n")?;
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
            .try_for_each(|decline| decline.print(out, None))
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
        output::spare(&mut table, &SPARED, output::columns());
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
