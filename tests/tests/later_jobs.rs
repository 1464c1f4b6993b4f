//! Rockmill's files give hardly more work later than RocksDB's own: their number, and the jobs that compact them because of
//! their age. "Subcompactions" in docs/internals/architecture.md names the compactions of which this is not true.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rockmill::Service;
use rockmill_format::wire::CompactionServiceInput;
use rockmill_tests::harness::{assert_done, local_options, open, service, wait_for_compact};
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, DB, ScheduleResponse,
};

/// After this age, files are compacted again.
const AGE_SECONDS: u64 = 10;

/// The input files of each compaction, by name.
type Jobs = Arc<Mutex<Vec<Vec<String>>>>;

/// A service that notes all compactions, and leaves them to RocksDB if it has no other service.
struct Noting {
    jobs: Jobs,
    service: Option<Service>,
}

impl CompactionService for Noting {
    fn name(&self) -> &CStr {
        c"noting"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let job = CompactionServiceInput::decode(input).expect("RocksDB wrote it");
        let names = job.input_files.iter().map(|path| name_of(path).to_owned());
        self.jobs.lock().expect("no panic").push(names.collect());
        match &self.service {
            Some(service) => service.schedule(info, input),
            None => ScheduleResponse::from_status(CompactionServiceJobStatus::UseLocal),
        }
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        let service = self.service.as_ref().expect("it has scheduled the job");
        service.wait(scheduled_job_id, result)
    }

    fn cancel_awaiting_jobs(&self) {
        if let Some(service) = &self.service {
            service.cancel_awaiting_jobs();
        }
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Random writes to some keys in level or universal style, and the option by which files are compacted again because of
/// their age.
#[derive(Clone, Copy, Debug)]
struct History {
    universal: bool,
    keys: u64,
    by: &'static str,
}

/// Counts of a database. [`Outcome::is_near`] says how far they may be from RocksDB's.
#[derive(Debug)]
struct Outcome {
    /// Compactions before the files grow old.
    jobs: usize,
    /// Files then.
    files: usize,
    /// Compactions of these files because of their age.
    later_jobs: usize,
    /// Files at the end.
    later_files: usize,
}

impl Outcome {
    /// Whether no count is more than 1.5 times RocksDB's, and two.
    fn is_near(&self, theirs: &Self) -> bool {
        let counts = |of: &Self| [of.jobs, of.files, of.later_jobs, of.later_files];
        let mut pairs = counts(self).into_iter().zip(counts(theirs));
        pairs.all(|(ours, theirs)| ours <= theirs * 3 / 2 + 2)
    }
}

fn names(db: &DB) -> BTreeSet<String> {
    let files = db.live_files().expect("live files").into_iter();
    files.map(|file| name_of(&file.name).to_owned()).collect()
}

/// Writes the history, with a wait for compactions after each flush, so that RocksDB picks the same files each time.
fn write(db: &DB, history: History) {
    const FLUSHES: usize = 40;
    const WRITES_PER_FLUSH: usize = 1500;
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..FLUSHES {
        for _ in 0..WRITES_PER_FLUSH {
            let key = rng.random_range(0..history.keys);
            let mut value = vec![b'v'; rng.random_range(0..200)];
            let half = value.len() / 2;
            rng.fill_bytes(&mut value[half..]);
            db.put(format!("key{key:08}"), &value).expect("put");
        }
        db.flush().expect("flush");
        wait_for_compact(db);
    }
}

fn run(service: Option<Service>, history: History) -> Outcome {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let jobs = Jobs::default();
    let mut options = local_options();
    options.set_compaction_service(Noting {
        jobs: Arc::clone(&jobs),
        service,
    });
    let tree = TreeShape {
        universal: history.universal,
        target_file_size: 64 << 10,
        write_buffer_size: 8 << 20,
        level_base: 256 << 10,
        ..TreeShape::default()
    };
    tree.apply(&mut options);
    options.set_disable_auto_compactions(false);
    options.set_ttl(0);
    options.set_periodic_compaction_seconds(0);
    let db = open(&options, directory.path());
    write(&db, history);
    let old = names(&db);
    let before = jobs.lock().expect("no panic").len();
    // Ages are differences of whole seconds.
    std::thread::sleep(Duration::from_secs(AGE_SECONDS + 2));
    db.set_options(&[(history.by, &AGE_SECONDS.to_string())])
        .expect("it can change");
    // New files grow old as well, so RocksDB would go on. It has picked all old ones if it picks none for a while.
    let picked = || jobs.lock().expect("no panic").len();
    let mut seen = 0;
    while seen < picked() {
        seen = picked();
        std::thread::sleep(Duration::from_secs(AGE_SECONDS / 4));
    }
    db.set_options(&[(history.by, "0")]).expect("it can change");
    wait_for_compact(&db);
    let all = jobs.lock().expect("no panic");
    // On a slow machine, new files may grow old too.
    let is_of_old = |job: &&Vec<String>| job.iter().any(|name| old.contains(name));
    Outcome {
        jobs: before,
        files: old.len(),
        later_jobs: all[before..].iter().filter(is_of_old).count(),
        later_files: names(&db).len(),
    }
}

#[test]
fn files_that_grow_old_take_few_more_jobs_than_rocksdbs() {
    const PERIODIC: &str = "periodic_compaction_seconds";
    // Hardly a key, most keys, and all keys are written again. In universal style, compactions of most keys drop half of
    // their input.
    let histories = [
        (false, 1_000_000, "ttl"),
        (false, 20_000, "ttl"),
        (false, 20_000, PERIODIC),
        (false, 500, PERIODIC),
        (true, 1_000_000, PERIODIC),
        (true, 20_000, PERIODIC),
        (true, 500, PERIODIC),
    ];
    let histories = histories.map(|(universal, keys, by)| History {
        universal,
        keys,
        by,
    });
    let service = service();
    std::thread::scope(|scope| {
        let pairs = histories.map(|history| {
            let ours = service.clone();
            let pair = [None, Some(ours)];
            let pair = pair.map(|service| scope.spawn(move || run(service, history)));
            (history, pair)
        });
        for (history, pair) in pairs {
            let [theirs, ours] = pair.map(|side| side.join().expect("no panic"));
            println!("{history:?}\n  RocksDB  {theirs:?}\n  Rockmill {ours:?}");
            assert!(ours.is_near(&theirs), "{history:?}: {ours:?}, {theirs:?}");
            assert!(theirs.later_jobs > 0, "{history:?}: {theirs:?}");
        }
    });
    assert_done(&service.stats());
}
