//! `rockmill bench input`: files to a GPU by mapping and by reading, from the page cache and from the disk.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use rockmill::Device;
use rockmill_core::{ReadAt, StageTime};
use rockmill_cuda::{CudaBackend, CudaSettings, InputPath, Target};
use rockmill_engine::storage::{InputFileReader, LocalStorage};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::outcome::Failure;
use crate::output;
use crate::side_by_side::{self, device, process_cpu};

/// What `rockmill bench input` takes.
#[derive(Debug, clap::Args)]
pub struct InputArgs {
    /// The GPU: cuda, cuda:N or auto, the first that can be used.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Folder for the files, which are removed at the end [default: the system's for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Files.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    files: u64,
    /// MiB of each.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=65536))]
    file_mib: u64,
    /// Threads.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// MiB that are mapped and registered at a time.
    #[arg(long, value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u64).range(1..=65536))]
    map_mib: Vec<u64>,
    /// Copies for each row, which shows the one of median time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Also from the disk, by evicting the files first.
    #[arg(long)]
    cold: bool,
    /// Print rows for machines.
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Clone, Serialize)]
struct Row {
    path: &'static str,
    /// Bytes that are mapped at a time.
    map_bytes: u64,
    /// Whether unmapping waits for the last copy.
    unmap_together: bool,
    cache: &'static str,
    threads: u32,
    bytes: u64,
    wall_s: f64,
    gb_per_s: f64,
    cpu_s_per_gb: f64,
    stages: Vec<StageTime>,
}

/// Runs the measurement.
pub fn run(args: &InputArgs) -> Result<(), Failure> {
    let settings = CudaSettings::default();
    let backend = match device::parse(&args.device)? {
        Device::Cuda(number) => CudaBackend::new(Target::Cuda(number), settings),
        Device::Kernels(target) => CudaBackend::new(target, settings),
        Device::Auto => CudaBackend::first_usable(settings),
        Device::Cpu | Device::Simulated(_) => {
            return Err(Failure::Usage("--device: a GPU is needed".to_owned()));
        }
    };
    let backend = backend.map_err(|e| Failure::Environment(e.to_string()))?;
    let rows = side_by_side::in_scratch(args.dir.as_deref(), |scratch| {
        measure_all(args, &backend, scratch)
    })?;
    print(&rows, args.json)
}

/// Every setting with every number of threads.
fn measure_all(
    args: &InputArgs,
    backend: &CudaBackend,
    scratch: &Path,
) -> Result<Vec<Row>, Failure> {
    let paths = make_files(scratch, args)?;
    let mut rows = Vec::new();
    for cache in [Cache::Warm, Cache::Cold] {
        if cache == Cache::Cold && !args.cold {
            continue;
        }
        for &threads in &args.threads {
            for settings in all_settings(args, threads as usize) {
                // The first makes what is made once.
                let mut measured = Vec::new();
                for _ in 0..=args.repeat {
                    measured.push(measure(backend, &paths, &settings, cache)?);
                }
                measured.remove(0);
                measured.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
                rows.push(measured[(measured.len() - 1) / 2].clone());
            }
        }
    }
    Ok(rows)
}

/// Reading, and mapping in pieces of every size, which are unmapped one by one or together.
fn all_settings(args: &InputArgs, io_threads: usize) -> Vec<CudaSettings> {
    let base = CudaSettings {
        input_path: InputPath::MappedAlways,
        io_threads,
        ..CudaSettings::default()
    };
    let mut all = vec![CudaSettings {
        input_path: InputPath::Read,
        ..base
    }];
    for mib in &args.map_mib {
        for unmap_together in [false, true] {
            all.push(CudaSettings {
                map_bytes: mib << 20,
                unmap_together,
                ..base
            });
        }
    }
    all
}

/// Whether the files are in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    Warm,
    Cold,
}

fn make_files(dir: &Path, args: &InputArgs) -> Result<Vec<PathBuf>, Failure> {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut chunk = vec![0; CHUNK_BYTES];
    SmallRng::seed_from_u64(1).fill_bytes(&mut chunk);
    let write = |path: &Path| {
        let mut file = File::create(path)?;
        for _ in 0..args.file_mib {
            file.write_all(&chunk)?;
        }
        file.sync_all()
    };
    (0..args.files)
        .map(|i| {
            let path = dir.join(i.to_string());
            write(&path).map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
            Ok(path)
        })
        .collect()
}

fn measure(
    backend: &CudaBackend,
    paths: &[PathBuf],
    settings: &CudaSettings,
    cache: Cache,
) -> Result<Row, Failure> {
    if cache == Cache::Cold {
        for path in paths {
            let evicted =
                File::open(path).and_then(|file| Ok(fadvise(&file, 0, None, Advice::DontNeed)?));
            evicted.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
        }
    }
    let files = paths
        .iter()
        .map(|path| Ok(Box::new(InputFileReader::open(&LocalStorage, path)?) as Box<dyn ReadAt>))
        .collect::<Result<Vec<_>, rockmill_core::Error>>()?;
    let bytes = files.iter().map(|file| file.len()).sum();
    let (started, cpu) = (Instant::now(), process_cpu());
    let stages = backend.load_files(&files, settings)?;
    let wall_s = started.elapsed().as_secs_f64();
    let cpu_s = (process_cpu() - cpu).as_secs_f64();
    Ok(Row {
        path: match settings.input_path {
            InputPath::Read => "read",
            _ => "mapped",
        },
        map_bytes: settings.map_bytes,
        unmap_together: settings.unmap_together,
        cache: if cache == Cache::Warm { "warm" } else { "cold" },
        threads: settings.io_threads as u32,
        bytes,
        wall_s,
        gb_per_s: bytes as f64 / 1e9 / wall_s,
        cpu_s_per_gb: cpu_s / (bytes as f64 / 1e9),
        stages,
    })
}

fn print(rows: &[Row], json: bool) -> Result<(), Failure> {
    output::document_or_text(json, rows, |out| Ok(writeln!(out, "{}", table(rows))?))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    let header = [
        "path", "unmap", "cache", "threads", "GB", "wall s", "GB/s", "CPU s/GB", "read s", "map s",
        "reg s", "copy s", "unreg s", "unmap s",
    ];
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        let seconds = |stage: &str| {
            let found = row.stages.iter().find(|s| s.stage == stage);
            found.map_or("-".to_owned(), |s| format!("{:.3}", s.seconds))
        };
        table.add_row([
            match row.path {
                "read" => "read".to_owned(),
                path => format!("{path} by {} MiB", row.map_bytes >> 20),
            },
            match (row.path, row.unmap_together) {
                ("mapped", true) => "at the end".to_owned(),
                _ => "-".to_owned(),
            },
            row.cache.to_owned(),
            row.threads.to_string(),
            format!("{:.1}", row.bytes as f64 / 1e9),
            format!("{:.3}", row.wall_s),
            format!("{:.1}", row.gb_per_s),
            format!("{:.3}", row.cpu_s_per_gb),
            seconds("read"),
            seconds("map"),
            seconds("register"),
            seconds("copy in"),
            seconds("unregister"),
            seconds("unmap"),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
