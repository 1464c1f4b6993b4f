//! Report of a compaction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use rockmill::{DeclineReason, Stats};
use rockmill_compaction::Forecast;
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_side_by_side::machine::process_cpu;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::plan::NOTHING;
use super::task::Task;
use crate::advice::{self, Decline};

/// Measures a compaction.
pub struct Clock {
    started: Instant,
    cpu: Duration,
}

/// Wall time and CPU time.
pub struct Times {
    wall_s: f64,
    cpu_s: f64,
}

impl Clock {
    /// Starts the measurement.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// Returns the time since the start, with the CPU time of all threads.
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

/// Number of jobs returned to RocksDB for one reason.
#[derive(Debug, Serialize)]
struct Returned {
    reason: String,
    jobs: u64,
    change: &'static str,
}

/// Another column family whose files changed.
#[derive(Debug, Serialize)]
struct OtherFamily {
    name: String,
    files_written: u64,
    files_removed: u64,
}

/// Result of a compaction.
#[derive(Debug, Serialize)]
pub struct Report {
    column_family: String,
    device: String,
    /// From the first job to the last, including RocksDB's own work.
    wall_s: f64,
    /// CPU time of the whole process in that time.
    cpu_s: f64,
    bytes_before: u64,
    bytes_after: u64,
    levels: Vec<Level>,
    other_column_families: Vec<OtherFamily>,
    /// Number of jobs that RocksDB did itself.
    jobs_returned: u64,
    returned: Vec<Returned>,
    /// Reasons that were found before; some of them are reasons of returned jobs.
    declines: Vec<Decline>,
    /// Rockmill's jobs only: input and output divided by their time.
    gb_per_s: Option<f64>,
    cpu_s_per_gb: Option<f64>,
    stats: Stats,
}

/// Number of files and bytes by level.
type Levels = BTreeMap<u32, (u64, u64)>;

impl Report {
    /// Makes the report from the counters and the trees before opening and after closing the database.
    pub fn new(
        task: &Task,
        forecast: &Forecast,
        stats: Stats,
        times: Times,
        before: &Tree,
        after: &Tree,
    ) -> Self {
        let levels = levels(&filled(task, before), &filled(task, after));
        Self {
            column_family: names::escape(task.column_family.as_bytes()),
            device: task.device.to_string(),
            wall_s: times.wall_s,
            cpu_s: times.cpu_s,
            bytes_before: levels.iter().map(|level| level.bytes_before).sum(),
            bytes_after: levels.iter().map(|level| level.bytes_after).sum(),
            levels,
            other_column_families: other_families(task, before, after),
            jobs_returned: stats.jobs_declined + stats.jobs_failed,
            returned: returned(&stats),
            declines: Decline::all(&forecast.found()),
            gb_per_s: stats.gb_per_s(),
            cpu_s_per_gb: stats.cpu_s_per_gb(),
            stats,
        }
    }

    /// Prints a JSON document, or a text: the counters if `stats` is set, RocksDB's own work and the reasons for it,
    /// other column families, and a summary.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
    pub fn print(&self, json: bool, stats: bool) -> Result<(), Failure> {
        output::document_or_text(json, self, |out| Ok(self.print_text(out, stats)?))
    }

    fn print_text(&self, out: &mut dyn Write, stats: bool) -> io::Result<()> {
        if stats {
            writeln!(out, "{}\n", self.level_table())?;
            let (device, cpu_s) = (&self.device, self.cpu_s);
            writeln!(out, "Rockmill on {device}; {cpu_s:.2} CPU-s in all")?;
            writeln!(out, "{}\n", self.stats)?;
        }
        self.print_returned(out)?;
        for family in &self.other_column_families {
            let OtherFamily {
                name,
                files_written,
                files_removed,
            } = family;
            writeln!(
                out,
                "column family {name} as well: {files_written} files written, {files_removed} removed"
            )?;
        }
        writeln!(out, "{}", self.sentence())
    }

    fn print_returned(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.returned.is_empty() {
            return Ok(());
        }
        writeln!(out, "why RocksDB did jobs itself")?;
        self.declines
            .iter()
            .try_for_each(|found| found.print(out))?;
        let told = |reason: &str| self.declines.iter().any(|found| found.reason == reason);
        for Returned { reason, change, .. } in &self.returned {
            if !told(reason) {
                writeln!(out, "  {reason}\n    to change that: {change}")?;
            }
        }
        Ok(())
    }

    /// Returns the summary.
    fn sentence(&self) -> String {
        let changed = |level: &Level| {
            (level.files_before, level.bytes_before) != (level.files_after, level.bytes_after)
        };
        let done = self.stats.jobs_done;
        if done + self.jobs_returned == 0 && !self.levels.iter().any(changed) {
            return NOTHING.to_owned();
        }
        let (before, after) = (megabytes(self.bytes_before), megabytes(self.bytes_after));
        let by = done_by(done, &self.returned);
        format!("{before} to {after} MB in {:.2} s, {by}", self.wall_s)
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

/// Says whether Rockmill or RocksDB did the jobs.
fn done_by(done: u64, returned: &[Returned]) -> String {
    let left: u64 = returned.iter().map(|returned| returned.jobs).sum();
    let reasons = returned.iter().map(|returned| returned.reason.as_str());
    let reasons = reasons.collect::<Vec<_>>().join(" and ");
    let all = done + left;
    match (done, left) {
        (0, 0) => "by moving files alone".to_owned(),
        (_, 0) => "done by Rockmill".to_owned(),
        (0, _) => format!("done by RocksDB because of {reasons}"),
        _ => {
            format!("{done} of {all} jobs done by Rockmill, {left} by RocksDB because of {reasons}")
        }
    }
}

/// Returns the levels of the column family that have files.
fn filled(task: &Task, tree: &Tree) -> Levels {
    let family = tree.by_name(task.column_family.as_bytes());
    let levels = family.into_iter().flat_map(|(_, family)| &family.levels);
    let filled = levels.filter(|(_, files)| !files.is_empty());
    let sums = filled.map(|(&level, files)| {
        let bytes = files.values().map(|file| file.size).sum();
        (level, (files.len() as u64, bytes))
    });
    sums.collect()
}

fn other_families(task: &Task, before: &Tree, after: &Tree) -> Vec<OtherFamily> {
    let numbers = |family: &ColumnFamily| -> BTreeSet<u64> {
        let files = family.levels.values().flat_map(|files| files.keys());
        files.copied().collect()
    };
    let others = after.column_families.iter();
    let others = others.filter(|(_, family)| family.name != task.column_family.as_bytes());
    let changes = others.map(|(id, family)| {
        let now = numbers(family);
        let then = before.column_families.get(id).map(numbers);
        let then = then.unwrap_or_default();
        OtherFamily {
            name: names::escape(&family.name),
            files_written: now.difference(&then).count() as u64,
            files_removed: then.difference(&now).count() as u64,
        }
    });
    let touched = |family: &OtherFamily| family.files_written + family.files_removed > 0;
    changes.filter(touched).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_who_did_the_jobs_and_why() {
        let returned = |reason: &str, jobs| Returned {
            reason: reason.to_owned(),
            jobs,
            change: "",
        };
        let both = [returned("wide-columns", 2), returned("error", 1)];
        for (done, returned, said) in [
            (0, &[][..], "by moving files alone"),
            (3, &[], "done by Rockmill"),
            (0, &both[..1], "done by RocksDB because of wide-columns"),
            (
                1,
                &both,
                "1 of 4 jobs done by Rockmill, 3 by RocksDB because of wide-columns and error",
            ),
        ] {
            assert_eq!(done_by(done, returned), said);
        }
    }
}
