//! The counters as a table of 80 columns without colours or lines.

use std::fmt::{self, Write};
use std::time::Duration;

use super::{DeviceStats, Durations, Stats};

/// Columns of a row's label.
const LABEL: usize = 10;
/// Columns of a cell; four cells and the label fit into 80 columns.
const CELL: usize = 17;
/// Columns of a line.
const LINE: usize = 80;

const MEDIAN: f64 = 0.5;
const P99: f64 = 0.99;

impl Stats {
    /// Gigabytes read and written per second while a job runs; `None` before the first job is done.
    pub fn gb_per_s(&self) -> Option<f64> {
        let seconds = self.job_seconds.sum().as_secs_f64();
        (seconds > 0.0).then(|| self.gigabytes() / seconds)
    }

    /// CPU seconds per gigabyte read and written; `None` before the first job is done.
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        let gigabytes = self.gigabytes();
        (gigabytes > 0.0).then(|| self.job_cpu_seconds.sum().as_secs_f64() / gigabytes)
    }

    /// Declined jobs by reason code, the most frequent reason first.
    pub fn declines_by_count(&self) -> Vec<(&str, u64)> {
        let declines = self.jobs_declined_by_reason.iter();
        let mut sorted: Vec<_> = declines
            .map(|(code, &jobs)| (code.as_str(), jobs))
            .collect();
        sorted.sort_by_key(|&(_, jobs)| std::cmp::Reverse(jobs));
        sorted
    }

    /// Gigabytes that jobs done have read and written.
    fn gigabytes(&self) -> f64 {
        (self.read_bytes + self.written_bytes) as f64 / 1e9
    }

    fn rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let rate = |of: Option<f64>, unit: &str| of.map(|rate| format!("{rate:.3} {unit}"));
        let gb_per_s = rate(self.gb_per_s(), "GB/s");
        let cpu_s_per_gb = rate(self.cpu_s_per_gb(), "s/GB");
        let mut rows = vec![
            (
                "jobs",
                vec![
                    format!("{} offered", self.jobs_offered),
                    format!("{} done", self.jobs_done),
                    format!("{} declined", self.jobs_declined),
                    format!("{} failed", self.jobs_failed),
                ],
            ),
            (
                "running",
                vec![
                    format!("{} jobs", self.jobs_running),
                    format!("{} held", show_bytes(self.subcompactions_held_bytes)),
                    format!("{} peak", show_bytes(self.subcompactions_peak_held_bytes)),
                    format!("{} subcompactions", self.subcompactions_running),
                ],
            ),
            (
                "bytes",
                vec![
                    format!("{} read", show_bytes(self.read_bytes)),
                    format!("{} written", show_bytes(self.written_bytes)),
                    format!("{} files", self.files_written),
                    gb_per_s.unwrap_or_default(),
                ],
            ),
            (
                "entries",
                vec![
                    format!("{} read", self.entries_read),
                    format!("{} written", self.entries_written),
                    format!("{} subcompactions", self.subcompactions),
                ],
            ),
            (
                "CPU",
                vec![
                    format!("{:.3} s", self.job_cpu_seconds.sum().as_secs_f64()),
                    cpu_s_per_gb.unwrap_or_default(),
                ],
            ),
        ];
        let times = [
            ("job time", &self.job_seconds),
            ("subcomp.", &self.subcompaction_seconds),
            ("waits", &self.subcompaction_wait_seconds),
        ];
        rows.extend(times.map(|(label, times)| (label, distribution(times))));
        // If only the CPU did subcompactions, the rows above show its work.
        if self.devices.keys().any(|name| name != "cpu") {
            let cells = |(name, did): (&String, &DeviceStats)| {
                let mut bytes = show_bytes(did.subcompaction_read_bytes);
                if did.subcompaction_near_data_bytes > 0 {
                    let wrote = show_bytes(did.subcompaction_near_data_bytes);
                    bytes += &format!(", wrote {wrote}");
                }
                let subcompactions = format!("{} subcompactions", did.subcompactions);
                ("on", vec![name.clone(), subcompactions, bytes])
            };
            rows.extend(self.devices.iter().map(cells));
        }
        if let Some(percent) = self.size_sample.percent_larger() {
            let bytes = show_bytes(self.size_sample.rockmill_bytes);
            let cells = vec![
                format!("{percent:+.1} % against the library's size"),
                format!("in a sample of {bytes}"),
            ];
            rows.push(("compressed", cells));
        }
        if self.files_cached_instead > 0 {
            let files = format!(
                "{} files could not bypass the page cache",
                self.files_cached_instead
            );
            rows.push(("cached", vec![files]));
        }
        if self.subcompactions_moved > 0 {
            let subcompactions = format!(
                "{} subcompactions moved to another device",
                self.subcompactions_moved
            );
            rows.push(("moved", vec![subcompactions]));
        }
        if self.jobs_with_plugins > 0 {
            let jobs = format!("{} jobs called the program", self.jobs_with_plugins);
            rows.push(("plug-ins", vec![jobs]));
        }
        if self.jobs_redone_by_cpu > 0 {
            let jobs = format!(
                "{} jobs done partly or entirely by the CPU instead",
                self.jobs_redone_by_cpu
            );
            rows.push(("device", vec![jobs]));
        }
        if self.subcompactions_redone_by_cpu > 0 {
            let subcompactions = format!(
                "{} subcompactions failed on it, quarantined {} times",
                self.subcompactions_redone_by_cpu, self.device_quarantined
            );
            rows.push(("device", vec![subcompactions]));
        }
        if self.subcompactions_abandoned > 0 {
            let subcompactions = format!(
                "{} subcompactions did not return in time",
                self.subcompactions_abandoned
            );
            rows.push(("device", vec![subcompactions]));
        }
        for (fault, times) in &self.simulated_faults {
            rows.push(("simulated", vec![format!("{times} x {fault}")]));
        }
        if self.verification_failures > 0 {
            let failed = format!(
                "{} subcompactions did not pass verification",
                self.verification_failures
            );
            rows.push(("discarded", vec![failed]));
        }
        for (reason, jobs) in self.declines_by_count() {
            rows.push(("declined", vec![format!("{jobs} x {reason}")]));
        }
        rows
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (label, cells)) in self.rows().into_iter().enumerate() {
            let mut line = format!("{label:LABEL$}");
            // The first cell of the first line is always shown.
            let kept = usize::from(at == 0);
            let rest = cells.iter().skip(kept).filter(|cell| !is_nothing(cell));
            let mut shown = cells.iter().take(kept).chain(rest).peekable();
            if shown.peek().is_none() {
                continue;
            }
            for cell in shown {
                write!(line, " {cell:<width$}", width = CELL - 1)?;
            }
            let end = if at == 0 { "" } else { "\n" };
            write!(f, "{end}{}", line.trim_end())?;
        }
        let sentences = [
            ("no device", &self.device_trouble),
            ("last error", &self.last_error),
        ];
        for (label, sentence) in sentences {
            if let Some(sentence) = sentence {
                write!(f, "\n{label:LABEL$} ")?;
                wrap(f, sentence)?;
            }
        }
        Ok(())
    }
}

/// Writes a sentence beside the labels, on as many lines as necessary.
fn wrap(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut column = LABEL + 1;
    for (at, word) in text.split_whitespace().enumerate() {
        let columns = word.chars().count();
        if at > 0 && column + 1 + columns > LINE {
            write!(f, "\n{:LABEL$} ", "")?;
            column = LABEL + 1;
        } else if at > 0 {
            f.write_char(' ')?;
            column += 1;
        }
        f.write_str(word)?;
        column += columns;
    }
    Ok(())
}

/// Whether a cell is empty or its count is zero.
fn is_nothing(cell: &str) -> bool {
    let number = cell.split(' ').next().unwrap_or_default();
    number.is_empty() || number.parse::<f64>() == Ok(0.0)
}

fn distribution(times: &Durations) -> Vec<String> {
    let named = [
        (times.mean(), "mean"),
        (times.quantile(MEDIAN), "median"),
        (times.quantile(P99), "p99"),
        (times.longest(), "longest"),
    ];
    let cell = |(time, name): (Option<Duration>, &str)| {
        time.map_or(String::new(), |time| {
            format!("{:.3} s {name}", time.as_secs_f64())
        })
    };
    named.map(cell).to_vec()
}

/// Formats bytes in a unit that leaves few digits.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["MB", "GB", "TB", "PB"];
    const STEP: f64 = 1000.0;
    let mut scaled = bytes as f64 / 1e6;
    let mut unit = 0;
    while scaled >= STEP && unit + 1 < UNITS.len() {
        scaled /= STEP;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use rockmill_core::SizeSample;

    use super::*;

    fn busy() -> Stats {
        let mut stats = Stats {
            jobs_offered: 1_000_000,
            jobs_done: 999_990,
            jobs_declined: 7,
            read_bytes: 3_000_000_000_000,
            written_bytes: 1_000_000_000_000,
            entries_read: u64::MAX / 1_000_000,
            subcompactions_held_bytes: 64 << 20,
            jobs_redone_by_cpu: 1,
            files_cached_instead: 1_000_000_000,
            size_sample: SizeSample {
                rockmill_bytes: 999_000_000_000,
                library_bytes: 900_000_000_000,
            },
            subcompactions_moved: 1_000_000,
            devices: ["cpu", "sim:near-data-ssd"]
                .map(|name| {
                    let did = DeviceStats {
                        subcompactions: 3_000_000,
                        subcompaction_read_bytes: 999_000_000_000,
                        subcompaction_near_data_bytes: 999_000_000_000,
                    };
                    (name.to_owned(), did)
                })
                .into(),
            subcompactions_redone_by_cpu: 3_000_000,
            device_quarantined: 1_000_000,
            subcompactions_abandoned: 1_000_000,
            simulated_faults: [("wrong_result".to_owned(), 1_000_000)].into(),
            verification_failures: 1,
            jobs_declined_by_reason: [("comparator", 2), ("merge-operands", 5)]
                .map(|(code, jobs)| (code.to_owned(), jobs))
                .into(),
            device_trouble: Some("another word ".repeat(40)),
            last_error: Some("a word ".repeat(40)),
            ..Stats::default()
        };
        for _ in 0..80 {
            stats.job_seconds.record(Duration::from_secs(100));
            stats.job_cpu_seconds.record(Duration::from_secs(25));
        }
        stats
    }

    #[test]
    fn the_table_fits_a_terminal() {
        for stats in [Stats::default(), busy()] {
            let text = stats.to_string();
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(LINE), "{text}");
            assert!(!text.contains("NaN") && !text.ends_with('\n'), "{text}");
        }
    }

    #[test]
    fn what_is_nothing_is_not_shown() {
        assert_eq!(Stats::default().to_string(), "jobs       0 offered");
        let some = Stats {
            jobs_offered: 1,
            jobs_done: 1,
            entries_read: 10,
            ..Stats::default()
        };
        let expected = "jobs       1 offered        1 done\nentries    10 read";
        assert_eq!(some.to_string(), expected);
    }

    #[test]
    fn rates_count_what_is_read_and_written() {
        assert_eq!(busy().gb_per_s(), Some(0.5));
        assert_eq!(busy().cpu_s_per_gb(), Some(0.5));
        let nothing = Stats::default();
        assert_eq!((nothing.gb_per_s(), nothing.cpu_s_per_gb()), (None, None));
    }

    #[test]
    fn the_most_frequent_reason_comes_first() {
        let expected = [("merge-operands", 5), ("comparator", 2)];
        assert_eq!(busy().declines_by_count(), expected);
    }

    #[test]
    fn a_document_has_all_of_it() {
        let document = serde_json::to_value(busy()).expect("serialises");
        assert_eq!(document["jobs_done"], 999_990);
        assert_eq!(document["jobs_declined_by_reason"]["merge-operands"], 5);
        assert_eq!(document["job_seconds"]["p99_s"], 100.0);
        assert_eq!(
            document["subcompaction_wait_seconds"]["mean_s"],
            serde_json::Value::Null
        );
    }
}
