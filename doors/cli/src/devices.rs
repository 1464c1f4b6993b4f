//! `rockmill devices`: lists the devices that can compute here, and the reasons why others cannot.

use std::path::PathBuf;

use comfy_table::{CellAlignment, Table};
use rockmill::Device;
use rockmill_core::CancelToken;
use rockmill_cuda::{Device as Gpu, LinkRates};
use rockmill_exec::host_memory::{HostMemory, machine_bytes};
use rockmill_side_by_side::machine::{processor, usual_threads};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rustix::thread::sched_getaffinity;
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
    limits: Limits,
    /// Reason why there are no GPUs, if there are none.
    no_gpu: Option<String>,
}

/// Limits of this process on the machine, from which defaults follow.
#[derive(Debug, Serialize)]
struct Limits {
    threads: u32,
    threads_by: ThreadsBy,
    memory_bytes: u64,
    /// File of the cgroup that limits the memory, if one does.
    memory_file: Option<PathBuf>,
}

/// The limit on the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ThreadsBy {
    Machine,
    Affinity,
    Cgroup,
}

impl Limits {
    fn now() -> Self {
        let memory = HostMemory::now();
        let threads = usual_threads();
        let affinity = sched_getaffinity(None).map_or(threads, |cpus| cpus.count());
        let online = std::fs::read_to_string(ONLINE).ok();
        let online = online.as_deref().and_then(count).unwrap_or(affinity);
        Self {
            threads,
            threads_by: match threads {
                _ if threads < affinity => ThreadsBy::Cgroup,
                _ if threads < online => ThreadsBy::Affinity,
                _ => ThreadsBy::Machine,
            },
            memory_bytes: memory.bytes,
            memory_file: memory.limited_by,
        }
    }

    fn text(&self) -> String {
        let threads = match self.threads_by {
            ThreadsBy::Machine => "the CPUs of the machine",
            ThreadsBy::Affinity => "the CPUs that the affinity allows",
            ThreadsBy::Cgroup => "the quota of the cgroup",
        };
        let memory = match &self.memory_file {
            None => "the memory of the machine".to_owned(),
            Some(file) => format!("the limit of the cgroup in {}", file.display()),
        };
        let (s, gb) = (
            if self.threads == 1 { "" } else { "s" },
            self.memory_bytes as f64 / 1e9,
        );
        format!(
            "limits: {} thread{s} ({threads}), {gb:.1} GB ({memory})",
            self.threads
        )
    }
}

/// File in which Linux lists the CPUs that are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Counts the CPUs of a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum()
}

/// Columns of the table that a narrow terminal does not show, by position.
const SPARED: [usize; 5] = [4, 6, 7, 5, 3];

/// A device.
#[derive(Debug, Serialize)]
struct Row {
    /// Argument of `--device` for the device.
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
    /// Reason why it cannot be used, if it cannot.
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
    let report = Report {
        devices,
        limits: Limits::now(),
        no_gpu,
    };
    output::document_or_text(args.json, &report, |out| {
        writeln!(out, "{}", table(&report.devices))?;
        writeln!(out, "{}", output::wrapped(&report.limits.text()))?;
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
    Row {
        device: Device::Cpu.to_string(),
        name: processor(),
        threads: Some(usual_threads()),
        memory_bytes: machine_bytes(),
        free_bytes: None,
        compute_capability: None,
        to_device: None,
        from_device: None,
        unusable: None,
    }
}

/// Probes a GPU briefly and returns its row.
fn gpu(gpu: &Gpu) -> Row {
    let about = gpu.properties();
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
    output::spare(&mut table, &SPARED, output::columns());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_a_list_are_counted() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }
}
