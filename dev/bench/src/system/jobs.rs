//! Full compactions of several databases at once, which share the machine and one service.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rockmill_side_by_side::machine::usual_threads;
use rockmill_side_by_side::run_config::{check_level_0, check_stats};
use rockmill_side_by_side::running_system::RunningSystem;
use rockmill_side_by_side::{measure, rocksdb};
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::DB;

use super::cell::{Cell, Jobs, Outcome, Phase, Traffic};

/// Databases of a process share RocksDB's threads, some of which only flush.
const BACKGROUND_JOBS_PER_DATABASE: u32 = 2;

/// The first round includes one-time setup of a service, such as a GPU's memory.
pub const ROUNDS: [&str; 2] = ["first", "again"];

/// Compacts the databases round by round. Each is in a numbered folder of its round, and is removed afterwards.
///
/// # Errors
/// Environment or Data, depending on the cause of the failure, also if the device did not do all of the work.
pub fn run(
    cell: &Cell,
    work: &Jobs,
    dir: &Path,
    running: &RunningSystem,
) -> Result<Outcome, Failure> {
    let mut phases = Vec::new();
    for name in ROUNDS {
        let dir = dir.join(name);
        phases.push(round(cell, work, name, &dir, running)?);
        fs::remove_dir_all(&dir)
            .map_err(|e| Failure::Environment(format!("{}: {e}", dir.display())))?;
    }
    Ok(Outcome { phases })
}

fn round(
    cell: &Cell,
    work: &Jobs,
    name: &str,
    dir: &Path,
    running: &RunningSystem,
) -> Result<Phase, Failure> {
    let mut databases = Vec::new();
    for number in 0..work.at_once {
        let mut options = work.spec.options(cell.system.subcompactions(cell.threads));
        options.set_max_background_jobs((BACKGROUND_JOBS_PER_DATABASE * (work.at_once + 1)) as i32);
        running.attach(&mut options);
        let db = DB::open(&options, dir.join(number.to_string()));
        databases.push(db.map_err(|e| rocksdb::failed("open a database", &e))?);
    }
    let read_bytes = bytes(&databases)?;
    let (wall, taken) = running.measured(|| {
        let began = Instant::now();
        thread::scope(|scope| {
            for db in &databases {
                scope.spawn(|| measure::compact_all(db));
            }
        });
        began.elapsed()
    });
    match &running.service {
        Some(service) => check_stats(&service.stats(), cell.system.device())?,
        None => {
            for db in &databases {
                let left = measure::first_level(db)?;
                check_level_0(left.iter().filter(|file| file.level == 0).count())?;
            }
        }
    }
    Ok(Phase {
        name: name.to_owned(),
        cores: usual_threads(),
        wall_s: wall.as_secs_f64(),
        settle_s: 0.0,
        taken,
        burnt_s: 0.0,
        reads: None,
        writes: None,
        traffic: Traffic {
            read_bytes,
            written_bytes: bytes(&databases)?,
            ..Traffic::default()
        },
        timeline: Vec::new(),
    })
}

/// Bytes of the first level of all databases.
fn bytes(databases: &[DB]) -> Result<u64, Failure> {
    let mut bytes = 0;
    for db in databases {
        bytes += measure::totals(&measure::first_level(db)?).0;
    }
    Ok(bytes)
}
