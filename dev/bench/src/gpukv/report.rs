//! Results, as tables and as JSON.

use std::fs;

use rockmill_side_by_side::energy::Energy;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use serde::Serialize;

use super::measure::Bench;

/// One line of the result.
#[derive(Debug, Serialize)]
pub struct Row {
    pub experiment: &'static str,
    pub point: String,
    pub way: String,
    pub scale: f64,
    /// Threads of the host that work, if the way has a number of them.
    pub threads: Option<usize>,
    /// Seconds to load the way's data, and for the choice of threads; the CPU seconds of both.
    pub load_s: f64,
    pub load_cpu_s: f64,
    /// Wall time of the run with the median time.
    pub wall_s: f64,
    /// Wall times of all runs, in their order.
    pub walls_s: Vec<f64>,
    pub cpu_s: f64,
    pub gpu_energy: Option<Energy>,
    /// Bytes copied to the device and back, without kernels' own reads of pinned memory.
    pub copied_gb: f64,
    pub keys: u64,
    pub gb: f64,
    pub keys_per_s: f64,
    pub gb_per_s: f64,
    /// Percentile of single gets or calls, if these are timed.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
}

/// Three digits, and a letter for powers of thousand.
fn short(number: f64) -> String {
    let (number, unit) = match number {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e3 => (n / 1e3, "k"),
        n => (n, ""),
    };
    match number {
        n if n >= 100.0 => format!("{n:.0}{unit}"),
        n if n >= 10.0 => format!("{n:.1}{unit}"),
        n if n >= 1e-3 || n == 0.0 => format!("{n:.3}{unit}"),
        n => format!("{n:.0e}"),
    }
}

impl Bench<'_> {
    /// Writes all rows to the requested folder. A killed command leaves the rows before.
    ///
    /// # Errors
    /// Environment if that fails.
    pub fn write(&self) -> Result<(), Failure> {
        let Some(folder) = &self.args.out else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(&self.rows)
            .map_err(|e| Failure::Environment(format!("cannot print: {e}")))?;
        let path = folder.join("gpukv.json");
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text + "\n"));
        written.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))
    }

    /// Prints all rows.
    ///
    /// # Errors
    /// Environment if that fails.
    pub fn print(&self) -> Result<(), Failure> {
        output::document_or_text(self.args.json, &self.rows, |out| {
            let same = |a: &Row, b: &Row| (a.experiment, &a.point) == (b.experiment, &b.point);
            for rows in self.rows.chunk_by(same) {
                writeln!(out, "{} {}", rows[0].experiment, rows[0].point)?;
                let header = [
                    "way", "load s", "wall s", "CPU s", "keys/s", "GB/s", "p50 us", "p99", "p99.9",
                ];
                let mut table = output::table(header);
                for row in rows {
                    let way = match row.threads {
                        Some(threads) => format!("{} x{threads}", row.way),
                        None => row.way.clone(),
                    };
                    let us = |us: Option<f64>| us.map_or_else(String::new, short);
                    table.add_row([
                        way,
                        short(row.load_s),
                        short(row.wall_s),
                        short(row.cpu_s),
                        short(row.keys_per_s),
                        short(row.gb_per_s),
                        us(row.p50_us),
                        us(row.p99_us),
                        us(row.p999_us),
                    ]);
                }
                for line in table.lines() {
                    writeln!(out, "{}", line.trim_end())?;
                }
            }
            Ok(())
        })
    }
}
