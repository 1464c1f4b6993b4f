//! `rockmill-bench model`: the speed of an accelerator according to its published formulas.

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rockmill_testkit::{UNIT_STAGES, UnitProfile, UnitSpeed};
use serde::Serialize;

/// Arguments of `rockmill-bench model`.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// The accelerator: fpga-cu (published), near-data-ssd, mid-gpu, or a file with the extension .json.
    #[arg(long, value_name = "NAME|FILE.json")]
    profile: String,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// Shown pairs: bytes of keys and of values.
const PAIRS: [(u32, u32); 9] = [
    (8, 32),
    (16, 64),
    (16, 128),
    (16, 256),
    (16, 512),
    (16, 1024),
    (16, 4096),
    (64, 32),
    (256, 32),
];

/// Shares of the input that are kept.
const KEPT: [f64; 2] = [1.0, 0.5];

#[derive(Debug, Serialize)]
struct Report {
    profile: UnitProfile,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    kept: f64,
    #[serde(flatten)]
    unit: UnitSpeed,
    /// Rate of all units together, if memory and link are fast enough.
    all_units_pairs_per_second: f64,
    /// Rate of the link, if there is one.
    link_pairs_per_second: Option<f64>,
}

/// Prints a built-in profile or the profile in a file.
///
/// # Errors
/// Usage if there is no such profile or it is invalid, Environment if the output cannot be written.
pub fn run(args: &ModelArgs) -> Result<(), Failure> {
    let profile =
        UnitProfile::find(&args.profile).map_err(|e| Failure::Usage(format!("--profile: {e}")))?;
    let mut rows = Vec::new();
    for kept in KEPT {
        for (key, value) in PAIRS {
            let unit = profile.unit_speed(key, value, kept);
            rows.push(Row {
                kept,
                all_units_pairs_per_second: f64::from(profile.units) * unit.pairs_per_second,
                link_pairs_per_second: profile.link_speed(key, value, kept),
                unit,
            });
        }
    }
    let report = Report { profile, rows };
    output::document_or_text(args.json, &report, |out| {
        let units = report.profile.units;
        writeln!(
            out,
            "million pairs of input a second: a unit by stage, all {units} units, the link"
        )?;
        Ok(writeln!(out, "{}", table(&report.rows))?)
    })
}

/// Formats a number in millions with three digits.
fn million(pairs: f64) -> String {
    match pairs / 1e6 {
        many @ 100.0.. => format!("{many:.0}"),
        some @ 10.0.. => format!("{some:.1}"),
        few @ 0.01.. => format!("{few:.2}"),
        hardly_any => format!("{hardly_any:.0e}"),
    }
}

fn table(rows: &[Row]) -> comfy_table::Table {
    let [decoder, transfer, merger, encoder] = UNIT_STAGES;
    let mut table = output::table([
        "pair", "kept", decoder, transfer, merger, encoder, "unit", "bound by", "all", "link",
    ]);
    for row in rows {
        let unit = &row.unit;
        let [decoder, transfer, merger, encoder] = unit.stages.map(million);
        table.add_row([
            format!("{}x{}", unit.key_bytes, unit.value_bytes),
            format!("{:.1}", row.kept),
            decoder,
            transfer,
            merger,
            encoder,
            million(unit.pairs_per_second),
            unit.bottleneck.to_owned(),
            million(row.all_units_pairs_per_second),
            row.link_pairs_per_second
                .map_or_else(|| "-".to_owned(), million),
        ]);
    }
    table
}
