//! The comparison as a table.

use std::io::Write;

use comfy_table::{CellAlignment, Table};

use super::compare::{Compared, Row, Wins};
use crate::outcome::Failure;
use crate::output::{self, Stop};

/// Prints the comparison.
///
/// # Errors
/// Environment if the output takes nothing.
pub fn print(compared: &Compared, json: bool) -> Result<(), Failure> {
    output::document_or_text(json, compared, |out| text(compared, out))
}

fn text(compared: &Compared, out: &mut dyn Write) -> Result<(), Stop> {
    writeln!(out, "{}", compared.machine)?;
    writeln!(out, "{}", rows(&compared.rows))?;
    for errors in &compared.errors {
        writeln!(
            out,
            "{}, {} at once: {} slices, error {:.1} % in the median, {:.1} % at the 90th percentile",
            errors.device,
            errors.at_once,
            errors.rows,
            100.0 * errors.median,
            100.0 * errors.p90
        )?;
    }
    if !compared.wins.is_empty() {
        writeln!(
            out,
            "\nsmallest slice from which a GPU is quicker than the CPU:"
        )?;
        writeln!(out, "{}", wins(&compared.wins))?;
    }
    Ok(())
}

fn rows(rows: &[Row]) -> Table {
    let mut table = output::table([
        "device",
        "slice",
        "MB in",
        "at once",
        "measured ms",
        "predicted ms",
        "error %",
        "waits for",
    ]);
    for row in rows {
        table.add_row([
            row.device.clone(),
            row.workload.clone(),
            format!("{:.1}", row.bytes_in as f64 / 1e6),
            row.at_once.to_string(),
            format!("{:.2}", 1e3 * row.measured_s),
            format!("{:.2}", 1e3 * row.predicted_s),
            format!("{:+.1}", 100.0 * row.error),
            row.bottleneck.name().to_owned(),
        ]);
    }
    align(&mut table, 2..7);
    table
}

fn wins(wins: &[Wins]) -> Table {
    let mut table = output::table(["device", "slice", "alone MB", "all processors MB"]);
    let megabytes = |from: Option<u64>| match from {
        Some(bytes) => format!("{:.2}", bytes as f64 / 1e6),
        None => "never".to_owned(),
    };
    for row in wins {
        table.add_row([
            row.device.clone(),
            row.workload.clone(),
            megabytes(row.alone_from_bytes),
            megabytes(row.at_once_from_bytes),
        ]);
    }
    align(&mut table, 2..4);
    table
}

/// Numbers stand to the right.
fn align(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in table
        .column_iter_mut()
        .skip(columns.start)
        .take(columns.len())
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
