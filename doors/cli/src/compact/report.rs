//! Report of the compactions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use rockmill::{DeclineReason, Stats};
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_side_by_side::machine::process_cpu;
use rockmill_snapshot::manual::UserKeys;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::plan::nothing;
use super::run::{Became, Done};
use super::task::{SelectedFamily, Task};
use crate::advice::{self, Decline};

/// Measures a compaction.
pub struct Clock {
    started: Instant,
    cpu: Duration,
}

/// Wall time and CPU time.
#[derive(Debug, Clone, Copy, Default)]
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
    change: String,
}

/// Another column family whose files changed.
#[derive(Debug, Serialize)]
struct OtherFamily {
    name: String,
    files_written: u64,
    files_removed: u64,
}

/// Result of one column family.
#[derive(Debug, Serialize)]
struct Family {
    name: String,
    result: &'static str,
    /// The error if it failed; else `null`.
    error: Option<String>,
    wall_s: f64,
    bytes_before: u64,
    bytes_after: u64,
    levels: Vec<Level>,
    /// Number of jobs that Rockmill did.
    jobs_done: u64,
    /// Jobs that RocksDB did itself.
    returned: Vec<Returned>,
    /// Reasons that were found in advance; some of them are reasons of returned jobs.
    declines: Vec<Decline>,
}

/// Result of the command.
#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    /// Seconds for all column families, with RocksDB's own work. Opening and closing the database are not included.
    wall_s: f64,
    /// CPU time of the whole process in that time.
    cpu_s: f64,
    bytes_before: u64,
    bytes_after: u64,
    column_families: Vec<Family>,
    /// Column families that the user did not name.
    other_column_families: Vec<OtherFamily>,
    /// Number of jobs that RocksDB did itself.
    jobs_returned: u64,
    returned: Vec<Returned>,
    /// Rockmill's jobs only: input and output divided by their time.
    gb_per_s: Option<f64>,
    cpu_s_per_gb: Option<f64>,
    stats: Stats,
    /// The sentence if nothing was compacted.
    #[serde(skip)]
    nothing: String,
}

/// Number of files and bytes by level.
type Levels = BTreeMap<u32, (u64, u64)>;

impl Family {
    fn new(
        task: &Task,
        selected: &SelectedFamily,
        done: &Done,
        [before, after]: [&Tree; 2],
    ) -> Self {
        let levels = levels(&filled(selected, before), &filled(selected, after));
        let [first, last] = &done.stats;
        Self {
            name: names::escape(selected.name.as_bytes()),
            result: match done.became {
                Became::Compacted => "compacted",
                Became::CompactedAlready => "compacted-already",
                Became::Empty if task.keys == UserKeys::default() => "empty",
                Became::Empty => "no-such-keys",
                Became::LeftAlone => "left-alone",
                Became::Failed(_) => "failed",
                Became::NotReached => "not-reached",
            },
            error: match &done.became {
                Became::Failed(failure) => Some(failure.to_string()),
                _ => None,
            },
            wall_s: done.times.wall_s,
            bytes_before: levels.iter().map(|level| level.bytes_before).sum(),
            bytes_after: levels.iter().map(|level| level.bytes_after).sum(),
            levels,
            jobs_done: last.jobs_done - first.jobs_done,
            returned: returned(first, last),
            declines: Decline::all(&selected.forecast.found()),
        }
    }

    /// Whether its files were compacted or moved.
    fn has_changed(&self) -> bool {
        let changed = |level: &Level| {
            (level.files_before, level.bytes_before) != (level.files_after, level.bytes_after)
        };
        self.jobs_done > 0 || !self.returned.is_empty() || self.levels.iter().any(changed)
    }

    /// The result in a table.
    fn verdict(&self) -> String {
        match self.result {
            "compacted" if !self.has_changed() => "nothing to compact".to_owned(),
            "compacted" => match (self.jobs_done, self.returned.len()) {
                (0, 0) => "files moved".to_owned(),
                (_, 0) => "by Rockmill".to_owned(),
                (0, _) => "by RocksDB".to_owned(),
                _ => "by both".to_owned(),
            },
            result => result.replace('-', " "),
        }
    }
}

impl Report {
    /// Makes the report from the counters, and from the trees before opening and after closing the database.
    pub fn new(task: &Task, stats: Stats, done: &[Done], trees: [&Tree; 2]) -> Self {
        let families = task.families.iter().zip(done);
        let families: Vec<_> = families
            .map(|(selected, done)| Family::new(task, selected, done, trees))
            .collect();
        let times = || done.iter().map(|done| done.times);
        Self {
            device: task.device.to_string(),
            wall_s: times().map(|times| times.wall_s).sum(),
            cpu_s: times().map(|times| times.cpu_s).sum(),
            bytes_before: families.iter().map(|family| family.bytes_before).sum(),
            bytes_after: families.iter().map(|family| family.bytes_after).sum(),
            column_families: families,
            other_column_families: other_families(task, trees),
            jobs_returned: stats.jobs_declined + stats.jobs_failed,
            returned: returned(&Stats::default(), &stats),
            gb_per_s: stats.gb_per_s(),
            cpu_s_per_gb: stats.cpu_s_per_gb(),
            stats,
            nothing: nothing(&task.keys),
        }
    }

    /// Prints a JSON document, or a text: the counters if `stats` is set, RocksDB's own work and the reasons for it,
    /// other column families, a table if there are several, and a summary.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
    pub fn print(&self, json: bool, stats: bool) -> Result<(), Failure> {
        output::document_or_text(json, self, |out| Ok(self.print_text(out, stats)?))
    }

    fn print_text(&self, out: &mut dyn Write, stats: bool) -> io::Result<()> {
        let several = self.column_families.len() > 1;
        if stats {
            for family in &self.column_families {
                if several {
                    writeln!(out, "column family {}", family.name)?;
                }
                writeln!(out, "{}\n", level_table(&family.levels))?;
            }
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
        if several {
            writeln!(out, "{}", self.table())?;
        }
        writeln!(out, "{}", output::wrapped(&self.sentence()))
    }

    /// Each reason once for all column families.
    fn print_returned(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.returned.is_empty() {
            return Ok(());
        }
        writeln!(out, "why RocksDB did jobs itself")?;
        let mut told: Vec<&Decline> = Vec::new();
        let families = self.column_families.iter();
        let of_returned = families.filter(|family| !family.returned.is_empty());
        for found in of_returned.flat_map(|family| &family.declines) {
            let is_same =
                |told: &&Decline| (told.reason, &told.what) == (found.reason, &found.what);
            if !told.iter().any(is_same) {
                found.print(out, None)?;
                told.push(found);
            }
        }
        for Returned { reason, change, .. } in &self.returned {
            if !told.iter().any(|found| found.reason == reason) {
                writeln!(out, "  {reason}\n    to change that: {change}")?;
            }
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = output::table(["column family", "MB", "MB after", "seconds", "result"]);
        for family in &self.column_families {
            table.add_row([
                family.name.clone(),
                megabytes(family.bytes_before),
                megabytes(family.bytes_after),
                format!("{:.2}", family.wall_s),
                family.verdict(),
            ]);
        }
        for column in table.column_iter_mut().skip(1).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// Returns the summary.
    fn sentence(&self) -> String {
        let families = &self.column_families;
        let of = |result: &str| {
            families
                .iter()
                .filter(|family| family.result == result)
                .count()
        };
        let work = {
            let (before, after) = (megabytes(self.bytes_before), megabytes(self.bytes_after));
            let by = done_by(self.stats.jobs_done, &self.returned);
            format!("{before} to {after} MB in {:.2} s, {by}", self.wall_s)
        };
        let all = families.len();
        if let [only] = families.as_slice() {
            return match only.result {
                "compacted-already" => {
                    format!(
                        "column family {} is compacted already; --force compacts it again",
                        only.name
                    )
                }
                "compacted" if only.has_changed() => work,
                "compacted" | "empty" | "no-such-keys" if self.other_column_families.is_empty() => {
                    self.nothing.clone()
                }
                "compacted" | "empty" | "no-such-keys" => {
                    format!("column family {}: {}", only.name, self.nothing)
                }
                result => {
                    format!("column family {}: {}", only.name, result.replace('-', " "))
                }
            };
        }
        let without_files = of("empty") + of("no-such-keys");
        if without_files == all {
            return self.nothing.clone();
        }
        if of("compacted-already") + without_files == all {
            return format!(
                "all {all} column families are compacted already; --force compacts them again"
            );
        }
        let results = [
            "compacted",
            "compacted-already",
            "empty",
            "no-such-keys",
            "left-alone",
            "failed",
            "not-reached",
        ];
        let counts = results.map(|result| (result, of(result))).into_iter();
        let counts = counts.filter(|&(_, count)| count > 0);
        let counts: Vec<_> = counts
            .map(|(result, count)| format!("{count} {}", result.replace('-', " ")))
            .collect();
        let counts = format!("{all} column families: {}", counts.join(", "));
        match of("compacted") {
            0 => counts,
            _ => format!("{counts}; {work}"),
        }
    }
}

fn level_table(levels: &[Level]) -> Table {
    let header = ["level", "files", "MB", "files after", "MB after"];
    let mut table = output::table(header);
    for level in levels {
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

/// States whether Rockmill or RocksDB did the jobs.
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
            let all = output::count(all as usize, "job", "jobs");
            format!("{done} of {all} done by Rockmill, {left} by RocksDB because of {reasons}")
        }
    }
}

/// Returns the levels of the column family that have files.
fn filled(selected: &SelectedFamily, tree: &Tree) -> Levels {
    let family = tree.by_name(selected.name.as_bytes());
    let levels = family.into_iter().flat_map(|(_, family)| &family.levels);
    let filled = levels.filter(|(_, files)| !files.is_empty());
    let sums = filled.map(|(&level, files)| {
        let bytes = files.values().map(|file| file.size).sum();
        (level, (files.len() as u64, bytes))
    });
    sums.collect()
}

fn other_families(task: &Task, [before, after]: [&Tree; 2]) -> Vec<OtherFamily> {
    let numbers = |family: &ColumnFamily| -> BTreeSet<u64> {
        let files = family.levels.values().flat_map(|files| files.keys());
        files.copied().collect()
    };
    let others = after.column_families.iter();
    let is_asked_for = |name: &[u8]| {
        let mut families = task.families.iter();
        families.any(|selected| selected.name.as_bytes() == name)
    };
    let others = others.filter(|(_, family)| !is_asked_for(&family.name));
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

/// Jobs that were returned to RocksDB between two readings of the counters, by reason.
fn returned(first: &Stats, last: &Stats) -> Vec<Returned> {
    let change = |code: &str| {
        let reason = DeclineReason::ALL
            .iter()
            .find(|reason| reason.code() == code);
        reason.map_or("", |&reason| advice::change(reason))
    };
    let since =
        |reason: &str, jobs: u64| jobs - first.jobs_declined_by_reason.get(reason).unwrap_or(&0);
    let declines = last.declines_by_count().into_iter();
    let declined = declines.map(|(reason, jobs)| Returned {
        reason: reason.to_owned(),
        jobs: since(reason, jobs),
        change: change(reason).to_owned(),
    });
    let failed = Returned {
        reason: "error".to_owned(),
        jobs: last.jobs_failed - first.jobs_failed,
        change: format!(
            "fix the cause of the last error: {}",
            last.last_error.as_deref().unwrap_or("it was not recorded")
        ),
    };
    let all = declined.chain([failed]);
    all.filter(|returned| returned.jobs > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_who_did_the_jobs_and_why() {
        let returned = |reason: &str, jobs| Returned {
            reason: reason.to_owned(),
            jobs,
            change: String::new(),
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
