//! Conditions that hold in all cases.

use std::collections::BTreeMap;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_compaction::record::{self, Comparison, FileSums, OutputSums};
use rockmill_compaction::staging::STAGING_DIR;
use rockmill_compaction::staging::location::TRIAL_FILE;
use rockmill_compaction::verify::table;
use rockmill_core::{CancelToken, DeclineReason, ErrorKind};

use crate::LEFTOVER;
use crate::database::{DIR, Database};
use crate::disk::{Disk, Survival};
use crate::family::OLDEST_ANCESTOR_TIME;
use crate::fault::{Fault, FaultKind, Op};
use crate::life::{Case, Ending, Outputs, RECORDS};
use crate::storage::{Seen, SimStorage};
use crate::tables;

/// A life, and its expected outputs.
pub struct Lived<'a> {
    pub life: u64,
    pub outputs: &'a Outputs,
}

/// Checks that output files are valid, contain the expected keys and values and are as old as the oldest input.
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

/// Checks that the job is done as without the fault, or that its error fits the fault.
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
            // Errors before there is a job are reported as declines.
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

/// Number of crashes at a life's end that are tried.
const CRASHES: usize = 8;

/// Checks the state after a life, and after crashes at its end.
pub fn after(storage: &SimStorage, case: &Case, of: &Lived<'_>) {
    let seen = storage.seen();
    if !seen.stopped {
        let disk = storage.disk();
        nothing_changed(&disk, &case.database);
        if !seen.struck.iter().any(|op| op.cleans()) {
            // Nothing is changed before the MANIFEST has identified the database.
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
            0 => Survival::Worst,
            1 => Survival::Best,
            _ => Survival::Random(&mut rng),
        });
        nothing_changed(&disk, &case.database);
        record_is_whole(disk, case, of, &seen);
    }
}

/// Checks that all files of the database are unchanged, and that only the files that RocksDB renamed and staging are
/// new.
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

/// Checks that the record of the life is complete or absent, and contains nothing else. Records of lives that a crash
/// ended stay unchanged.
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

/// Checks that a record with a job has its inputs, unless it was removed again, and that the sums of the output are
/// right if there are any. An undisturbed life leaves both.
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
    let expected = sums(of.outputs);
    let is_same = |found: OutputSums| expected.compare(&found) == Comparison::SameBytes;
    assert!(found.is_none_or(is_same));
}

fn sums(outputs: &Outputs) -> OutputSums {
    let files = outputs.iter().map(|(name, bytes)| {
        let sums = FileSums(bytes.len() as u64, crc32c::crc32c(bytes), None);
        (name.clone(), sums)
    });
    OutputSums {
        compressor: None,
        files: files.collect(),
    }
}
