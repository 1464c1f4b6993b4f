//! `rockmill devices`: lists the devices that can compute here, and why others cannot.

use comfy_table::{CellAlignment, Table};
use rockmill::Device;
use rockmill_core::CancelToken;
use rockmill_cuda::{Device as Gpu, LinkRates};
use rockmill_side_by_side::machine::{processor, usual_threads};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use serde::Serialize;

/// Arguments of `rockmill devices`.
#[derive(Debug, clap::Args)]
pub struct DevicesArgs {
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// All devices of the machine.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Row>,
    /// Why there are no GPUs, if there are none.
    no_gpu: Option<String>,
}

/// A device.
#[derive(Debug, Serialize)]
struct Row {
    /// Argument of `--device` for it.
    device: String,
    name: String,
    /// Number of usable processors, for the CPU.
    threads: Option<u32>,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    /// In the form `9.0`.
    compute_capability: Option<String>,
    /// Rates of the link in bytes per second.
    to_device: Option<f64>,
    from_device: Option<f64>,
    /// Why it cannot be used, if it cannot.
    unusable: Option<String>,
}

/// Lists the devices. A machine without a GPU is not a failure.
///
/// # Errors
/// Environment if the output cannot be written.
pub fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let mut devices = vec![cpu()];
    let no_gpu = match Gpu::all_gpus() {
        Ok(gpus) => {
            devices.extend(gpus.iter().map(gpu));
            gpus.is_empty().then(|| "the machine has none".to_owned())
        }
        Err(error) => Some(error.what),
    };
    let report = Report { devices, no_gpu };
    output::document_or_text(args.json, &report, |out| {
        writeln!(out, "{}", table(&report.devices))?;
        for row in &report.devices {
            if let Some(why) = &row.unusable {
                let why = format!("{} cannot be used: {why}", row.device);
                writeln!(out, "{}", output::wrapped(&why))?;
            }
        }
        if let Some(why) = &report.no_gpu {
            writeln!(out, "{}", output::wrapped(&format!("no GPU: {why}")))?;
        }
        Ok(())
    })
}

fn cpu() -> Row {
    let system = rustix::system::sysinfo();
    let unit = u64::from(system.mem_unit);
    Row {
        device: Device::Cpu.to_string(),
        name: processor(),
        threads: Some(usual_threads()),
        memory_bytes: system.totalram * unit,
        free_bytes: None,
        compute_capability: None,
        to_device: None,
        from_device: None,
        unusable: None,
    }
}

/// Probes a GPU briefly and returns its row.
fn gpu(gpu: &Gpu) -> Row {
    let about = gpu.about();
    let probed = gpu.probe().and_then(|()| {
        Ok((
            gpu.free_bytes()?,
            LinkRates::measure(gpu, &CancelToken::new())?,
        ))
    });
    let (major, minor) = about.compute_capability;
    let (measured, unusable) = match probed {
        Ok(measured) => (Some(measured), None),
        Err(error) => (None, Some(error.what)),
    };
    Row {
        device: Device::Cuda(gpu.number()).to_string(),
        name: about.name.clone(),
        threads: None,
        memory_bytes: about.memory_bytes,
        free_bytes: measured.map(|(free, _)| free),
        compute_capability: Some(format!("{major}.{minor}")),
        to_device: measured.map(|(_, rates)| rates.to_device),
        from_device: measured.map(|(_, rates)| rates.from_device),
        unusable,
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = output::table([
        "device",
        "name",
        "threads",
        "GB",
        "free GB",
        "compute",
        "GB/s to",
        "GB/s from",
        "usable",
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let giga = |amount: Option<f64>| or_dash(amount.map(|amount| format!("{:.1}", amount / 1e9)));
    for row in rows {
        table.add_row([
            row.device.clone(),
            row.name.clone(),
            or_dash(row.threads.map(|threads| threads.to_string())),
            giga(Some(row.memory_bytes as f64)),
            giga(row.free_bytes.map(|bytes| bytes as f64)),
            or_dash(row.compute_capability.clone()),
            giga(row.to_device),
            giga(row.from_device),
            match row.unusable {
                None => "yes".to_owned(),
                Some(_) => "no".to_owned(),
            },
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
