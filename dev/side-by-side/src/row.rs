//! One measurement as a line of a table and as JSON.

use comfy_table::{CellAlignment, Table, presets};
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use crate::measure::Measured;
use crate::run_config::RunConfig;

/// One line of the result.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Name of the compacted database.
    pub workload: String,
    /// `rocksdb` or `rockmill`.
    pub system: &'static str,
    /// Devices that it computes on.
    pub device: String,
    /// Subcompactions in flight for Rockmill, subcompactions for RocksDB.
    pub threads: u32,
    /// Size of the files to write.
    pub target_file_bytes: u64,
    /// Seconds from call to end.
    pub wall_s: f64,
    /// CPU time of the process, in seconds.
    pub cpu_s: f64,
    /// Size of the files that were compacted.
    pub bytes_in: u64,
    /// Size of the output files.
    pub bytes_out: u64,
    /// Gigabytes of input and output per second.
    pub gb_per_s: f64,
    /// Memory limit of the system while compacting, if there is one.
    pub budget_bytes: Option<u64>,
    /// Growth of the process's resident memory while compacting.
    pub peak_memory_bytes: u64,
    /// Whether that exceeds the budget by at most a tenth.
    pub within_budget: Option<bool>,
    /// Whether the result equals RocksDB's; `null` if it was not compared.
    pub identical: Option<bool>,
    /// Set if the CPU did some of the device's work, with the reason.
    pub left_to_cpu: Option<String>,
    /// Further settings of the system that differ between rows.
    #[serde(skip)]
    pub way: String,
    #[serde(skip)]
    entries_dropped: u64,
}

impl Row {
    /// Makes the row of a measurement.
    pub fn new(config: &RunConfig, measured: &Measured, identical: Option<bool>) -> Self {
        let (spec, system) = (&config.spec, config.system);
        let budget_bytes = config.budget_bytes();
        let peak_memory_bytes = measured.peak_memory_bytes;
        Self {
            workload: spec.name(),
            system: system.name(),
            device: system.device().to_string(),
            threads: config.threads,
            target_file_bytes: spec.target_file_bytes,
            wall_s: measured.wall_s,
            cpu_s: measured.cpu_s,
            bytes_in: measured.bytes_in,
            bytes_out: measured.bytes_out,
            gb_per_s: gigabytes(measured.bytes_in + measured.bytes_out) / measured.wall_s,
            budget_bytes,
            peak_memory_bytes,
            within_budget: budget_bytes.map(|budget| peak_memory_bytes <= budget + budget / TENTH),
            identical,
            left_to_cpu: measured.left_to_cpu.clone(),
            way: String::new(),
            entries_dropped: measured.entries_in.saturating_sub(measured.entries_out),
        }
    }

    /// Returns a line below the table about work that the device left to the CPU.
    pub fn note(&self) -> Option<String> {
        let left = self.left_to_cpu.as_ref()?;
        Some(format!("{}: {left}", self.device))
    }

    /// CPU time per gigabyte of input and output.
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / gigabytes(self.bytes_in + self.bytes_out)
    }
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Tolerance for memory outside the budget: threads' stacks, the allocator's own, RocksDB's part of a job.
const TENTH: u64 = 10;

/// Title of a column, and its text for a row.
type Column = (&'static str, fn(&Row) -> String);

/// Title of the column of entries that are not in the result.
pub const DROPPED: &str = "dropped";
/// Title of the column of peak memory relative to its limit.
const BUDGET: &str = "of budget";
/// Title of the column of the size of files to write.
pub const FILE_SIZE: &str = "file MiB";
/// Title of the column of devices.
pub const DEVICE: &str = "device";
/// Title of the column of further settings.
pub const WAY: &str = "way";
/// Title of the column of CPU time per gigabyte of input and output.
pub const CPU_PER_GB: &str = "CPU s/GB";

const COLUMNS: [Column; 15] = [
    ("system", |row| row.system.to_owned()),
    (DEVICE, |row| row.device.clone()),
    (WAY, |row| row.way.clone()),
    ("threads", |row| row.threads.to_string()),
    (FILE_SIZE, |row| (row.target_file_bytes >> 20).to_string()),
    ("wall s", |row| format!("{:.2}", row.wall_s)),
    ("CPU s", |row| format!("{:.2}", row.cpu_s)),
    (CPU_PER_GB, |row| format!("{:.2}", row.cpu_s_per_gb())),
    ("MB in", |row| megabytes(row.bytes_in)),
    ("MB out", |row| megabytes(row.bytes_out)),
    ("GB/s", |row| format!("{:.3}", row.gb_per_s)),
    ("peak MB", |row| megabytes(row.peak_memory_bytes)),
    (BUDGET, |row| {
        let Some(budget) = row.budget_bytes else {
            return "-".to_owned();
        };
        let share = 100.0 * row.peak_memory_bytes as f64 / budget as f64;
        let verdict = if row.within_budget == Some(false) {
            " TOO MUCH"
        } else {
            ""
        };
        format!("{share:.0} %{verdict}")
    }),
    (DROPPED, |row| row.entries_dropped.to_string()),
    ("identical", |row| {
        let said = row.identical.map(|yes| if yes { "yes" } else { "NO" });
        said.unwrap_or("-").to_owned()
    }),
];

/// Columns that may be omitted for lack of space, in the order of omission.
const SPARED: [&str; 6] = [FILE_SIZE, DROPPED, BUDGET, "CPU s", "peak MB", "MB out"];

/// Makes a table of the rows without the columns `without`. If the terminal is too narrow, more columns are omitted;
/// the JSON document has all of them.
pub fn table(rows: &[&Row], without: &[&str]) -> Table {
    let mut without = without.to_vec();
    let mut spared = SPARED.iter().filter(|title| is_spared(rows, title));
    loop {
        let mut table = whole_table(rows, &without);
        let widest = table.lines().map(|line| line.chars().count()).max();
        let columns = output::fit(&mut table);
        match spared.next() {
            Some(next) if widest > Some(usize::from(columns)) => without.push(next),
            _ => return table,
        }
    }
}

/// Whether a column may be omitted: it neither distinguishes rows nor shows that a limit was exceeded.
fn is_spared(rows: &[&Row], title: &str) -> bool {
    match title {
        FILE_SIZE => {
            let sizes = rows.windows(2);
            let mut pairs =
                sizes.map(|pair| (pair[0].target_file_bytes, pair[1].target_file_bytes));
            pairs.all(|(one, next)| one == next)
        }
        BUDGET => rows.iter().all(|row| row.within_budget != Some(false)),
        _ => true,
    }
}

fn whole_table(rows: &[&Row], without: &[&str]) -> Table {
    let shown = || COLUMNS.iter().filter(|(title, _)| !without.contains(title));
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(shown().map(|(title, _)| *title));
    for row in rows {
        table.add_row(shown().map(|(_, cell)| cell(row)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
