//! One subcompaction on one thread, stage by stage: the CPU time of the CPU backend's stages.
//!
//! ```text
//! cargo bench -p rockmill-compaction --bench subcompaction -- [--dir DIR] [--entries N] [--rounds N] [--only NAME]
//!     [--versions N] [--runs N] [--read-ahead-kib N] [--json]
//! ```
//!
//! Runs of random keys merge into files of 64 MiB at the bottom level; by default there are eight runs, and each key is
//! in four of them. The CPU backend's own writer creates the input files in `DIR`, and they stay in the page cache.
//! Each stage runs together with those before it; its time is the difference between the minima over several rounds.
//! Encoding decodes the finished blocks again. Reading back the files' tails runs separately. CPU time is the calling
//! thread's time in user and system mode.

#[allow(dead_code, reason = "tests use the rest")]
mod made;

use made::{Inputs, Workload};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rockmill_compaction::Settings;
use rockmill_compaction::staging::{StagingDir, StagingSink};
use rockmill_compaction::verify::table::verify_tail;
use rockmill_core::{
    Backend, BlockStream, CancelToken, InputTable, KeyRange, Operator, OutputFile, Plan, ReadTask,
    Result, SstFile, SstSink, open_table,
};
use rockmill_cpu::CpuBackend;
use rockmill_cpu::decode::{Accepted, RunReader};
use rockmill_cpu::merge::Merge;
use rockmill_cpu::retain::{Sink, retain};
use rockmill_format::compression::CompressionType;
use rockmill_storage::io::{JobIo, TaskFiles};
use rockmill_storage::{InputFileReader, LocalStorage, Storage};

use rustix::time::{ClockId, clock_gettime};

/// Keys, and the sizes of keys and values.
struct Pairs {
    name: &'static str,
    key: fn(u64) -> Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
}

const PAIRS: [Pairs; 3] = [
    Pairs {
        name: "16x256",
        key: |i| format!("{i:016}").into_bytes(),
        key_bytes: 16,
        value_bytes: 256,
    },
    Pairs {
        name: "8x32",
        key: |i| i.to_be_bytes().to_vec(),
        key_bytes: 8,
        value_bytes: 32,
    },
    Pairs {
        name: "40x100",
        key: |i| format!("customer/orders/by-date/{i:016}").into_bytes(),
        key_bytes: 40,
        value_bytes: 100,
    },
];

impl Pairs {
    /// Creates runs with that many entries in total.
    fn make(&self, args: &Args, dir: &Path) -> Result<Inputs> {
        let workload = Workload {
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            runs: args.runs,
            versions: args.versions,
            compression: CompressionType::None,
            raw_bytes: args.entries * (self.key_bytes + self.value_bytes) as u64,
        };
        let set_key = |i, key: &mut [u8]| key.copy_from_slice(&(self.key)(i));
        Inputs::with_keys(&workload, dir, "input", set_key, &CancelToken::new())
    }
}

struct Args {
    dir: PathBuf,
    entries: u64,
    rounds: usize,
    only: Option<String>,
    versions: u32,
    runs: u32,
    read_ahead_bytes: usize,
    json: bool,
}

fn main() {
    let args = args();
    let mut reports = Vec::new();
    for pairs in &PAIRS {
        if args.only.as_deref().is_none_or(|only| only == pairs.name) {
            reports.push(measure(pairs, &args).expect("the subcompaction runs"));
        }
    }
    if args.json {
        let json = serde_json::to_string_pretty(&reports).expect("plain numbers");
        println!("{json}");
    } else {
        reports.iter().for_each(Report::print);
    }
}

fn args() -> Args {
    let mut args = Args {
        dir: std::env::temp_dir(),
        entries: 2_000_000,
        rounds: 3,
        only: None,
        versions: 4,
        runs: 8,
        read_ahead_bytes: Settings::default().mutable.read_ahead_bytes,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("a value behind the option");
        match word.as_str() {
            "--dir" => args.dir = next().into(),
            "--entries" => args.entries = next().parse().expect("a number"),
            "--rounds" => args.rounds = next().parse().expect("a number"),
            "--only" => args.only = Some(next()),
            "--versions" => args.versions = next().parse().expect("a number"),
            "--runs" => args.runs = next().parse().expect("a number"),
            "--read-ahead-kib" => {
                args.read_ahead_bytes = next().parse::<usize>().expect("a number") << 10;
            }
            "--json" => args.json = true,
            // Cargo's own option.
            "--bench" => {}
            other => panic!("unknown option {other}"),
        }
    }
    args
}

/// One stage: the time that it adds to the stages before it.
#[derive(serde::Serialize)]
struct StageTime {
    stage: &'static str,
    ns_per_entry_in: f64,
    cpu_s_per_gb: f64,
}

#[derive(serde::Serialize)]
struct Report {
    workload: &'static str,
    entries_in: u64,
    entries_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    stages: Vec<StageTime>,
    cpu_s: f64,
    cpu_s_per_gb: f64,
    gb_per_cpu_s: f64,
}

impl Report {
    fn print(&self) {
        println!(
            "\n{}: {} entries, {} bytes in; {} entries, {} bytes out",
            self.workload, self.entries_in, self.bytes_in, self.entries_out, self.bytes_out
        );
        println!("{:<10} {:>12} {:>14}", "stage", "ns/entry in", "CPU-s/GB");
        for time in &self.stages {
            println!(
                "{:<10} {:>12.1} {:>14.3}",
                time.stage, time.ns_per_entry_in, time.cpu_s_per_gb
            );
        }
        println!(
            "{:<10} {:>12.1} {:>14.3}   {:.3} GB/CPU-s",
            "all",
            self.cpu_s * 1e9 / self.entries_in as f64,
            self.cpu_s_per_gb,
            self.gb_per_cpu_s
        );
    }
}

fn measure(pairs: &Pairs, args: &Args) -> Result<Report> {
    let scratch = tempfile::Builder::new()
        .prefix("rockmill-subcompaction-")
        .tempdir_in(&args.dir)
        .expect("a scratch folder");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage);
    let staging = |name: &str| StagingDir::create(Arc::clone(&storage), scratch.path(), name);
    let made = pairs.make(args, scratch.path())?;
    let inputs = made.tables();
    let bench = Bench {
        plan: made.plan(),
        inputs,
        cancel: CancelToken::new(),
        range: KeyRange::default(),
        read_ahead_bytes: args.read_ahead_bytes,
    };
    let mut files = Vec::new();
    let mut outputs = staging("output")?;
    let mut write = || {
        // Removes the files of the previous round first.
        drop(std::mem::replace(&mut outputs, staging("none")?));
        outputs = staging("output")?;
        let mut sink = StagingSink::new(outputs.files(), job_io(), TaskFiles::new(0));
        let (time, made) = timed(|| bench.write(&mut sink))?;
        files = made;
        Ok(time)
    };
    let cumulative = [
        ("read", best(args, || Ok(timed(|| bench.read())?.0))?),
        ("checksum", best(args, || Ok(timed(|| bench.load())?.0))?),
        ("decode", best(args, || Ok(timed(|| bench.decode())?.0))?),
        ("merge", best(args, || Ok(timed(|| bench.merge())?.0))?),
        ("retain", best(args, || Ok(timed(|| bench.retain())?.0))?),
        (
            "encode",
            best(args, || Ok(timed(|| bench.write(&mut NullSink))?.0))?,
        ),
        ("write", best(args, &mut write)?),
    ];
    let verify = best(args, || Ok(timed(|| bench.verify(&outputs, &files))?.0))?;
    let bytes_in: u64 = inputs.iter().map(|table| table.meta.file_size).sum();
    let entries_in: u64 = inputs
        .iter()
        .map(|table| table.meta.properties.num_entries)
        .sum();
    let bytes_out: u64 = files.iter().map(|file| file.size).sum();
    let gb = (bytes_in + bytes_out) as f64 / 1e9;
    let mut stages = Vec::new();
    let mut stage = |stage, time: Duration| {
        stages.push(StageTime {
            stage,
            ns_per_entry_in: time.as_secs_f64() * 1e9 / entries_in as f64,
            cpu_s_per_gb: time.as_secs_f64() / gb,
        });
    };
    let mut before = Duration::ZERO;
    for (name, time) in cumulative {
        stage(name, time.saturating_sub(before));
        before = time;
    }
    stage("tails", verify);
    let cpu_s = (before + verify).as_secs_f64();
    Ok(Report {
        workload: pairs.name,
        entries_in,
        entries_out: files.iter().map(|file| file.content.entries()).sum(),
        bytes_in,
        bytes_out,
        stages,
        cpu_s,
        cpu_s_per_gb: cpu_s / gb,
        gb_per_cpu_s: gb / cpu_s,
    })
}

/// Returns the minimum time over several rounds.
fn best(args: &Args, mut round: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..args.rounds {
        best = best.min(round()?);
    }
    Ok(best)
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
    };
    let started = now();
    let result = work()?;
    Ok((now() - started, result))
}

/// The stages.
struct Bench<'a> {
    plan: &'a Plan,
    inputs: &'a [InputTable],
    cancel: CancelToken,
    range: KeyRange,
    read_ahead_bytes: usize,
}

impl Bench<'_> {
    fn read(&self) -> Result<()> {
        let mut chunk = vec![0; self.read_ahead_bytes];
        for table in self.inputs {
            let mut at = 0;
            while at < table.meta.file_size {
                let len = (table.meta.file_size - at).min(self.read_ahead_bytes as u64);
                table.file.read_exact_at(&mut chunk[..len as usize], at)?;
                at += len;
            }
        }
        Ok(())
    }

    fn load(&self) -> Result<()> {
        for table in self.inputs {
            let mut stream = BlockStream::new(table, self.read_ahead_bytes);
            let blocks = table.meta.index.len();
            for block in 0..blocks {
                stream.load(block..blocks)?;
            }
        }
        Ok(())
    }

    fn run<'s>(&'s self, table: &'s InputTable) -> Result<RunReader<'s>> {
        RunReader::open(
            table,
            &self.range,
            Accepted::Compacted,
            self.read_ahead_bytes,
            &self.cancel,
        )
    }

    fn decode(&self) -> Result<()> {
        for table in self.inputs {
            let mut run = self.run(table)?;
            while run.head().is_some() {
                run.advance()?;
            }
        }
        Ok(())
    }

    fn merged(&self) -> Result<Merge<'_>> {
        let runs: Result<Vec<_>> = self.inputs.iter().map(|table| self.run(table)).collect();
        Ok(Merge::new(runs?))
    }

    fn merge(&self) -> Result<()> {
        let mut merge = self.merged()?;
        while merge.head().is_some() {
            merge.advance()?;
        }
        Ok(())
    }

    fn retain(&self) -> Result<()> {
        retain(&self.plan.rules, &mut self.merged()?, &mut Forget).map(drop)
    }

    fn write(&self, sink: &mut dyn SstSink) -> Result<Vec<OutputFile>> {
        let task = ReadTask {
            reading: (self.plan).reading(self.inputs, &self.range, self.read_ahead_bytes),
            cancel: &self.cancel,
            progress: None,
        };
        let plan = &self.plan.output;
        let report = CpuBackend.run(task, Operator::WriteSst { plan, sink })?;
        Ok(report.files().to_vec())
    }

    fn verify(&self, dir: &StagingDir, files: &[OutputFile]) -> Result<()> {
        for file in files {
            let table = open(&dir.files().file(file.number))?;
            verify_tail(&table, file, [0; 3])?;
        }
        Ok(())
    }
}

/// A sink that discards entries.
struct Forget;

impl Sink for Forget {
    fn emit(&mut self, _: &[u8], _: u64, _: &[u8], _: u64, _: bool) -> Result<()> {
        Ok(())
    }
}

/// A sink of files that discards bytes.
struct NullSink;

impl SstSink for NullSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        Ok((1, Box::new(Self)))
    }
}

impl SstFile for NullSink {
    fn append(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn open(path: &Path) -> Result<InputTable> {
    open_table(Box::new(InputFileReader::open(&LocalStorage, path)?))
}

fn job_io() -> Arc<JobIo> {
    let storage = Arc::new(LocalStorage);
    Arc::new(JobIo::new(storage, CancelToken::new()))
}
