//! What must hold, whatever happened.

use std::collections::BTreeMap;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_compaction::record::{self, OutputSums};
use rockmill_compaction::staging::STAGING_DIR;
use rockmill_compaction::staging::place::TRIAL_FILE;
use rockmill_compaction::verify::table;
use rockmill_core::{CancelToken, DeclineReason, ErrorKind};

use crate::LEFTOVER;
use crate::database::{DIR, Database};
use crate::disk::{Disk, Luck};
use crate::family::OLDEST_ANCESTOR_TIME;
use crate::fault::{Fault, FaultKind, Op};
use crate::life::{Case, Ending, Outputs, RECORDS};
use crate::storage::{Seen, SimStorage};
use crate::tables;

/// Which life, and what it writes if it comes to that.
pub struct Lived<'a> {
    pub life: u64,
    pub outputs: &'a Outputs,
}

/// Output files are sound, hold the expected keys and values and are as old as the oldest input.
pub fn contents(outputs: &Outputs, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut found = Vec::new();
    for (_, bytes) in outputs {
        let table = tables::open(bytes.clone()).expect("a sound file");
        let oldest = table.meta.properties.oldest_ancestor_time;
        assert_eq!(oldest, OLDEST_ANCESTOR_TIME, "the age of the data is lost");
        table::scan(&table, &CancelToken::new(), |key, tag, value| {
            assert_eq!(tag as u8, tables::PUT, "tombstones are dropped");
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .expect("sound blocks");
    }
    let expected: Vec<_> = expected.clone().into_iter().collect();
    assert!(found == expected, "the output is not what RocksDB leaves");
}

/// The job is done as without the fault, or its error tells of the fault.
pub fn ending(ending: &Ending, fault: Fault, storage: &SimStorage, undisturbed: &Outputs) {
    let kind = fault.kind;
    let struck = storage.seen().struck;
    let error = match ending {
        Ending::Done(outputs) => {
            assert!(outputs == undisturbed, "other bytes than undisturbed");
            return;
        }
        Ending::Failed(error) => {
            let fitting = match kind {
                FaultKind::Closing => ErrorKind::Cancelled,
                _ => ErrorKind::Storage,
            };
            assert_eq!(error.kind, fitting, "{error}; {fault:?} at {struck:?}");
            error
        }
        Ending::Unprepared(error) => {
            // What keeps a job from being made is told as a reason to leave it to RocksDB.
            let fitting = [
                ErrorKind::Cancelled,
                ErrorKind::Declined(DeclineReason::Manifest),
                ErrorKind::Declined(DeclineReason::OptionsFile),
                ErrorKind::Storage,
            ];
            assert!(fitting.contains(&error.kind), "{error}; {fault:?}");
            error
        }
    };
    assert!(!kind.is_harmless(), "{kind:?} made the job fail: {error}");
    assert!(!struck.is_empty(), "without a fault: {error}");
}

/// So many ways a crash at a life's end may go are looked at.
const CRASHES: usize = 8;

/// What a life leaves, and what a crash at its end would.
pub fn after(storage: &SimStorage, case: &Case, of: &Lived<'_>) {
    let seen = storage.seen();
    if !seen.stopped {
        let disk = storage.disk();
        nothing_changed(&disk, &case.database);
        if !seen.struck.iter().any(|op| op.cleans()) {
            // Nothing is touched before the MANIFEST has told which database it is.
            let reads = |op: &Op| matches!(op, Op::Open | Op::Size | Op::Read);
            let may_stay = seen.struck.iter().any(reads).then_some(LEFTOVER);
            for folder in [case.staging(), Path::new(DIR).join(STAGING_DIR)] {
                let staging = disk.list(&folder).unwrap_or_default();
                let stays = staging.iter().find(|&name| Some(&**name) != may_stay);
                assert!(stays.is_none(), "{stays:?} stays; {:?}", seen.struck);
            }
            let trial = disk.open(&Path::new(DIR).join(TRIAL_FILE));
            assert!(trial.is_err(), "the trial's file stays");
            record_is_tidy(&disk, case, of.life);
        }
    }
    let mut rng = SmallRng::seed_from_u64(case.seed);
    for i in 0..CRASHES {
        let disk = storage.after_crash(&mut match i {
            0 => Luck::Worst,
            1 => Luck::Best,
            _ => Luck::Random(&mut rng),
        });
        nothing_changed(&disk, &case.database);
        record_is_whole(disk, case, of, &seen);
    }
}

/// All files of the database are as they were, and beside them lies nothing but what RocksDB took, and
/// staging.
fn nothing_changed(disk: &Disk, database: &Database) {
    for (path, bytes) in &database.files {
        let node = disk.open(path).expect("the file is still there");
        assert!(disk.bytes(node) == bytes, "{path:?} was changed");
    }
    for name in disk.list(Path::new(DIR)).expect("a folder") {
        let known = database.files.contains_key(&Path::new(DIR).join(&name));
        let taken = name.len() == "001000.sst".len() && name.ends_with(".sst");
        let ours = name == STAGING_DIR || name == TRIAL_FILE;
        assert!(known || taken || ours, "{name} is new");
    }
}

/// There is no half record of the life, and nothing else in a whole one. Those of lives that a crash
/// ended stay as they are.
fn record_is_tidy(disk: &Disk, case: &Case, life: u64) {
    let dir = Path::new(RECORDS).join(case.session_id(life));
    let Ok(mut names) = disk.list(&dir) else {
        return;
    };
    assert!(names.iter().any(|name| name == record::JOB_FILE));
    names.retain(|name| name != record::JOB_FILE && name != record::OUTPUTS_FILE);
    names.retain(|name| !case.database.files.contains_key(&Path::new(DIR).join(name)));
    assert!(names.is_empty(), "{names:?} in a record");
}

/// If the life's record has a job, it has the inputs, unless it was removed again. The sums of the output,
/// if there are any, are right. An undisturbed life leaves both.
fn record_is_whole(disk: Disk, case: &Case, of: &Lived<'_>, seen: &Seen) {
    let undisturbed = seen.struck.is_empty();
    let dir = Path::new(RECORDS).join(case.session_id(of.life));
    if disk.open(&dir.join(record::JOB_FILE)).is_err() {
        assert!(!undisturbed || !case.records, "there is no record");
        return;
    }
    let storage = SimStorage::new(disk, 0, None, CancelToken::new());
    let job = record::load(&storage, &dir.join(record::JOB_FILE)).expect("a whole job");
    for input in &job.tree.inputs {
        let original = &case.database.files[&Path::new(DIR).join(&input.name)];
        match storage.peek(&dir.join(&input.name)) {
            Ok(kept) => assert!(&kept == original, "{} was changed", input.name),
            Err(e) => assert!(!undisturbed && !seen.stopped, "{}: {e}", input.name),
        }
    }
    let found = record::load_outputs(&storage, &dir).expect("whole sums");
    assert!(found.is_some() || !undisturbed, "there are no sums");
    assert_eq!(found.unwrap_or_else(|| sums(of.outputs)), sums(of.outputs));
}

fn sums(outputs: &Outputs) -> OutputSums {
    let sums = outputs.iter().map(|(name, bytes)| {
        let sum = (bytes.len() as u64, crc32c::crc32c(bytes));
        (name.clone(), sum)
    });
    sums.collect()
}
