//! Repeats one recorded job.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rockmill_compaction::record::{
    self, Comparison, DECLINED_FILE, JOB_FILE, OUTPUTS_FILE, OutputSums,
};
use rockmill_compaction::{
    DeviceList, Engine, Finished, MIN_MEMORY_BUDGET_BYTES, MutableSettings, Settings,
};
use rockmill_core::{CancelToken, DeclineReason, ErrorKind};
use rockmill_format::wire::CompactionServiceResult;
use rockmill_storage::LocalStorage;

/// The message for RocksDB, without the parts that differ from run to run.
const RESULT_FILE: &str = "result.bin";

/// Number of bytes that are shown around the first difference of two messages.
const SHOWN_BYTES: usize = 60;

/// Result of a job.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was done.
    Done {
        /// Sums of the output files.
        sums: OutputSums,
        /// [`RESULT_FILE`].
        result: Vec<u8>,
        /// The devices that did it.
        device: String,
    },
    /// It was declined, with the reason's code.
    Declined(String),
}

/// Engines for the jobs.
#[derive(Debug)]
pub struct Engines {
    engine: Engine,
    /// An engine on the CPU with the smallest memory budget, for jobs that must be too large.
    scant: Engine,
}

impl Engines {
    /// Opens the devices.
    pub fn new(device: DeviceList) -> Self {
        let engine = |device, mutable| {
            let settings = Settings {
                mutable,
                device,
                ..Settings::default()
            };
            let engine = Engine::new(settings, Arc::new(LocalStorage)).expect("sound settings");
            engine.wait_for_device().expect("the device opens");
            engine
        };
        let least = MutableSettings {
            memory_budget_bytes: MIN_MEMORY_BUDGET_BYTES,
            ..MutableSettings::default()
        };
        Self {
            engine: engine(device, MutableSettings::default()),
            scant: engine(DeviceList::default(), least),
        }
    }

    /// Runs the job in `dir`.
    pub fn run(&self, dir: &Path) -> Result<Ended, String> {
        let job = record::load(&LocalStorage, &dir.join(JOB_FILE)).map_err(|e| e.to_string())?;
        let engine = match declined(dir)?.as_deref() {
            Some(code) if code == DeclineReason::MemoryBudget.code() => &self.scant,
            _ => &self.engine,
        };
        let out = tempfile::tempdir().map_err(|e| e.to_string())?;
        let ran = (engine.eligible(job))
            .and_then(|job| engine.run(&job, dir, out.path(), &CancelToken::new()));
        match ran {
            Ok(finished) => done(&finished),
            Err(error) if matches!(error.kind, ErrorKind::Declined(_)) => {
                Ok(Ended::Declined(error.kind.code().to_owned()))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn declined(dir: &Path) -> Result<Option<String>, String> {
    record::load_declined(&LocalStorage, dir).map_err(|e| e.to_string())
}

fn done(finished: &Finished) -> Result<Ended, String> {
    let (outcome, cancel) = (&finished.outcome, CancelToken::new());
    let sums = record::sum_outputs(&LocalStorage, &finished.staging, outcome, &cancel);
    Ok(Ended::Done {
        sums: sums.map_err(|e| e.to_string())?,
        result: without_times(&finished.result)?,
        device: finished.outcome.device.clone(),
    })
}

/// Returns the message without times and without the staging folder.
fn without_times(message: &[u8]) -> Result<Vec<u8>, String> {
    let mut result = CompactionServiceResult::decode(message).map_err(|e| e.to_string())?;
    result.output_path.clear();
    result.stats.elapsed_micros = 0;
    result.stats.cpu_micros = 0;
    result.output_level_stats.micros = 0;
    result.output_level_stats.cpu_micros = 0;
    Ok(result.encode([0; 3]))
}

/// Returns the recorded result of the job in `dir`, without devices.
pub fn recorded(dir: &Path) -> Result<Ended, String> {
    if let Some(code) = declined(dir)? {
        return Ok(Ended::Declined(code));
    }
    let sums = record::load_outputs(&LocalStorage, dir).map_err(|e| e.to_string())?;
    Ok(Ended::Done {
        sums: sums.ok_or("nothing is recorded of it")?,
        result: fs::read(dir.join(RESULT_FILE)).map_err(|e| e.to_string())?,
        device: String::new(),
    })
}

/// Records the result of the job in `dir` in place of the recorded one.
pub fn keep(dir: &Path, ended: &Ended) -> Result<(), String> {
    for file in [DECLINED_FILE, OUTPUTS_FILE, RESULT_FILE] {
        match fs::remove_file(dir.join(file)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.to_string()),
            _ => {}
        }
    }
    match ended {
        Ended::Declined(code) => fs::write(dir.join(DECLINED_FILE), format!("{code:?}")),
        Ended::Done { sums, result, .. } => {
            record::keep_outputs(&LocalStorage, dir, sums).map_err(|e| e.to_string())?;
            fs::write(dir.join(RESULT_FILE), result)
        }
    }
    .map_err(|e| e.to_string())
}

/// Compares the result of a job with the recorded one.
pub fn compare(recorded: &Ended, ended: &Ended) -> Result<(), String> {
    let (expected, found) = match (recorded, ended) {
        (
            Ended::Done { sums, result, .. },
            Ended::Done {
                sums: s, result: r, ..
            },
        ) => {
            match s.compare(sums) {
                Comparison::SameBytes => {}
                // The message has the files' sizes.
                Comparison::SameEntries(why) => {
                    println!("{why}");
                    return Ok(());
                }
                Comparison::Different => {
                    return Err(format!("the files are {s:?} instead of {sums:?}"));
                }
            }
            (result, r)
        }
        _ if recorded == ended => return Ok(()),
        _ => return Err(format!("it ended as {ended:?} instead of {recorded:?}")),
    };
    let pairs = expected.iter().zip(found);
    let same = pairs.take_while(|(a, b)| a == b).count();
    if same == expected.len().max(found.len()) {
        return Ok(());
    }
    let around = |message: &[u8]| {
        let end = message.len().min(same + SHOWN_BYTES);
        let shown = &message[same.saturating_sub(SHOWN_BYTES)..end];
        shown.escape_ascii().to_string()
    };
    let (expected, found) = (around(expected), around(found));
    Err(format!(
        "its result differs: ..{found}.. instead of ..{expected}.."
    ))
}
