//! What a compaction came to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use rockmill::{DeclineReason, Stats};
use serde::Serialize;

use super::Task;
use crate::advice;
use crate::outcome::Failure;
use crate::output::{self, megabytes};
use crate::side_by_side::process_cpu;

/// Measures a compaction.
pub struct Clock {
    started: Instant,
    cpu: Duration,
}

/// Wall time and processor time.
pub struct Times {
    wall_s: f64,
    cpu_s: f64,
}

impl Clock {
    /// Begins now.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// The time since the start, of all threads.
    pub fn stop(&self) -> Times {
        Times {
            wall_s: self.started.elapsed().as_secs_f64(),
            cpu_s: (process_cpu() - self.cpu).as_secs_f64(),
        }
    }
}

/// One level before and after.
#[derive(Debug, Serialize)]
struct Level {
    level: u32,
    files_before: u64,
    bytes_before: u64,
    files_after: u64,
    bytes_after: u64,
}

/// Jobs that went back to RocksDB for one reason.
#[derive(Debug, Serialize)]
struct Returned {
    reason: String,
    jobs: u64,
    change: &'static str,
}

/// What a compaction came to.
#[derive(Debug, Serialize)]
pub struct Report {
    column_family: String,
    device: String,
    wall_s: f64,
    cpu_s: f64,
    levels: Vec<Level>,
    jobs_offered: u64,
    jobs_done: u64,
    /// Jobs that RocksDB did itself.
    jobs_returned: u64,
    returned: Vec<Returned>,
    /// What the last of them was returned for, or why the CPU did a device's work.
    last_error: Option<String>,
    jobs_device_refused: u64,
    bytes_in: u64,
    bytes_out: u64,
    entries_in: u64,
    entries_out: u64,
    slices: u64,
    /// Of Rockmill's jobs: input and output over the time that they took.
    gb_per_s: Option<f64>,
}

/// Files and bytes by level.
type Levels = BTreeMap<u32, (u64, u64)>;

impl Report {
    /// What the counters and the levels say.
    pub fn new(task: &Task, stats: &Stats, times: Times, before: Levels, after: Levels) -> Self {
        let gigabytes = (stats.bytes_read + stats.bytes_written) as f64 / 1e9;
        let busy_s = stats.busy_micros as f64 / 1e6;
        Self {
            column_family: task.column_family.clone(),
            device: task.device.to_string(),
            wall_s: times.wall_s,
            cpu_s: times.cpu_s,
            levels: levels(&before, &after),
            jobs_offered: stats.jobs_scheduled,
            jobs_done: stats.jobs_done,
            jobs_returned: stats.jobs_declined + stats.jobs_failed,
            returned: returned(stats),
            last_error: stats.last_error.clone(),
            jobs_device_refused: stats.jobs_device_refused,
            bytes_in: stats.bytes_read,
            bytes_out: stats.bytes_written,
            entries_in: stats.entries_in,
            entries_out: stats.entries_out,
            slices: stats.slices,
            gb_per_s: (stats.jobs_done > 0).then(|| gigabytes / busy_s),
        }
    }

    /// Prints a table, or a document for machines.
    ///
    /// # Errors
    /// Environment if the output takes nothing.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        output::document_or_text(json, self, |out| Ok(self.print_text(out)?))
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.level_table())?;
        writeln!(out, "{}", self.job_table())?;
        for returned in &self.returned {
            let Returned {
                reason,
                jobs,
                change,
            } = returned;
            writeln!(
                out,
                "RocksDB did {jobs} itself: {reason}; to change that: {change}"
            )?;
        }
        if self.jobs_device_refused > 0 {
            writeln!(out, "the CPU did {} of the jobs", self.jobs_device_refused)?;
        }
        match &self.last_error {
            Some(error) => writeln!(out, "last: {error}"),
            None => Ok(()),
        }
    }

    fn level_table(&self) -> Table {
        let header = ["level", "files", "MB", "files after", "MB after"];
        let mut table = output::table(header);
        for level in &self.levels {
            table.add_row([
                level.level.to_string(),
                level.files_before.to_string(),
                megabytes(level.bytes_before),
                level.files_after.to_string(),
                megabytes(level.bytes_after),
            ]);
        }
        align_right(table, 0)
    }

    fn job_table(&self) -> Table {
        let header = [
            "done by",
            "jobs",
            "slices",
            "MB in",
            "MB out",
            "entries in",
            "entries out",
            "GB/s",
        ];
        let mut table = output::table(header);
        let rate = self.gb_per_s.map(|rate| format!("{rate:.3}"));
        table.add_row([
            format!("Rockmill on {}", self.device),
            self.jobs_done.to_string(),
            self.slices.to_string(),
            megabytes(self.bytes_in),
            megabytes(self.bytes_out),
            self.entries_in.to_string(),
            self.entries_out.to_string(),
            rate.unwrap_or_else(|| "-".to_owned()),
        ]);
        table.add_row(["RocksDB".to_owned(), self.jobs_returned.to_string()]);
        align_right(table, 1)
    }
}

fn align_right(mut table: Table, from: usize) -> Table {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn levels(before: &Levels, after: &Levels) -> Vec<Level> {
    let all: BTreeSet<u32> = before.keys().chain(after.keys()).copied().collect();
    let level = |level| {
        let of = |levels: &Levels| levels.get(&level).copied().unwrap_or_default();
        let ((files_before, bytes_before), (files_after, bytes_after)) = (of(before), of(after));
        Level {
            level,
            files_before,
            bytes_before,
            files_after,
            bytes_after,
        }
    };
    all.into_iter().map(level).collect()
}

fn returned(stats: &Stats) -> Vec<Returned> {
    let change = |code: &str| {
        let reason = DeclineReason::ALL
            .iter()
            .find(|reason| reason.code() == code);
        reason.map_or("", |&reason| advice::change(reason))
    };
    let declined = stats.declines.iter().map(|(reason, &jobs)| Returned {
        reason: reason.clone(),
        jobs,
        change: change(reason),
    });
    let failed = (stats.jobs_failed > 0).then(|| Returned {
        reason: "error".to_owned(),
        jobs: stats.jobs_failed,
        change: "see the last error",
    });
    declined.chain(failed).collect()
}
