//! The comparison as a table.

use std::io::Write;

use comfy_table::{CellAlignment, Table};

use super::compare::{Compared, Loses, Row};
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
            "{}, {} at once: {} slices, error {:.1} % in the median, {:.1} % at the 90th percentile; of the \
             host's processor time {:.1} % and {:.1} %",
            errors.device,
            errors.at_once,
            errors.rows,
            100.0 * errors.median,
            100.0 * errors.p90,
            100.0 * errors.cpu_median,
            100.0 * errors.cpu_p90
        )?;
    }
    if !compared.loses.is_empty() {
        writeln!(
            out,
            "\na GPU is slower than the CPU with less input than so many MB a slice; what is not listed it does not do:"
        )?;
        writeln!(out, "{}", loses(&compared.loses))?;
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

fn loses(loses: &[Loses]) -> Table {
    let mut table = output::table(["device", "slice", "by itself", "one a processor"]);
    let megabytes = |below: Option<u64>| match below {
        Some(bytes) => format!("{:.2}", bytes as f64 / 1e6),
        None => "always".to_owned(),
    };
    for row in loses {
        table.add_row([
            row.device.clone(),
            row.kind.clone(),
            megabytes(row.alone_below_bytes),
            megabytes(row.at_once_below_bytes),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_gpu_loses_is_told_by_kind_of_slice() {
        let loses = |kind: &str, alone_below_bytes, at_once_below_bytes| Loses {
            device: "cuda:0".to_owned(),
            kind: kind.to_owned(),
            alone_below_bytes,
            at_once_below_bytes,
        };
        let table = super::loses(&[
            loses("16x256:none 4/8", Some(1_234_000), Some(40_000_000)),
            loses("4x4:none 1/2", Some(500_000), None),
        ]);
        let rows: Vec<Vec<String>> = (table.to_string().lines())
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert!(
            rows.contains(
                &["cuda:0", "16x256:none", "4/8", "1.23", "40.00"]
                    .map(String::from)
                    .to_vec()
            )
        );
        assert!(
            rows.contains(
                &["cuda:0", "4x4:none", "1/2", "0.50", "always"]
                    .map(String::from)
                    .to_vec()
            )
        );
    }
}
