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
    /// From the first job to the last, with what RocksDB did itself.
    wall_s: f64,
    /// Of the whole process in that time.
    cpu_s: f64,
    levels: Vec<Level>,
    /// Jobs that RocksDB did itself.
    jobs_returned: u64,
    returned: Vec<Returned>,
    /// Of Rockmill's jobs: input and output over the time that they took.
    gb_per_s: Option<f64>,
    cpu_s_per_gb: Option<f64>,
    stats: Stats,
}

/// Files and bytes by level.
type Levels = BTreeMap<u32, (u64, u64)>;

impl Report {
    /// What the counters and the levels say.
    pub fn new(task: &Task, stats: Stats, times: Times, before: Levels, after: Levels) -> Self {
        Self {
            column_family: task.column_family.clone(),
            device: task.device.to_string(),
            wall_s: times.wall_s,
            cpu_s: times.cpu_s,
            levels: levels(&before, &after),
            jobs_returned: stats.jobs_declined + stats.jobs_failed,
            returned: returned(&stats),
            gb_per_s: stats.gb_per_s(),
            cpu_s_per_gb: stats.cpu_s_per_gb(),
            stats,
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
        let (wall_s, cpu_s) = (self.wall_s, self.cpu_s);
        writeln!(out, "took {wall_s:.2} s, {cpu_s:.2} CPU-s\n")?;
        writeln!(out, "Rockmill on {}\n{}", self.device, self.stats)?;
        if !self.returned.is_empty() {
            writeln!(out, "\nRocksDB did itself")?;
        }
        for returned in &self.returned {
            let Returned {
                reason,
                jobs,
                change,
            } = returned;
            writeln!(out, "  {jobs} x {reason}; to change that: {change}")?;
        }
        Ok(())
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
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
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
    let declines = stats.declines_by_count().into_iter();
    let declined = declines.map(|(reason, jobs)| Returned {
        reason: reason.to_owned(),
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
