//! Jobs whose OPTIONS file is not the one that was in force when RocksDB picked them.
//!
//! RocksDB installs the options of `SetOptions` before it writes them, and may pick compactions in between. Other
//! compactions wait for a thread after they were picked. A service in front of Rockmill produces both cases on purpose.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};

use rockmill_format::wire::CompactionServiceInput;
use rockmill_tests::content::assert_content;
use rockmill_tests::harness::{
    assert_done, compact_everything, fill, local_options, open, put, service,
};
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, DB, ScheduleResponse,
};

const WRITES: usize = 6_000;

/// Rockmill behind a service that changes each job's message and is notified when the job has ended.
struct Changed<B, A> {
    rockmill: rockmill::Service,
    before: B,
    after: A,
}

impl<B, A> CompactionService for Changed<B, A>
where
    B: Fn(&mut CompactionServiceInput) + Send + Sync,
    A: Fn() + Send + Sync,
{
    fn name(&self) -> &CStr {
        self.rockmill.name()
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let mut message = CompactionServiceInput::decode(input).expect("a sound message");
        (self.before)(&mut message);
        self.rockmill.schedule(info, &message.encode())
    }

    fn wait(&self, id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        let status = self.rockmill.wait(id, result);
        (self.after)();
        status
    }

    fn cancel_awaiting_jobs(&self) {
        self.rockmill.cancel_awaiting_jobs();
    }

    fn on_installation(&self, id: &CStr, status: Option<CompactionServiceJobStatus>) {
        self.rockmill.on_installation(id, status);
    }
}

/// Returns the numbers of the OPTIONS files of a database, the newest last.
fn options_files(database: &Path) -> Vec<u64> {
    let names = fs::read_dir(database).expect("it is there");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let number = |name: &str| name.strip_prefix("OPTIONS-")?.parse().ok();
    let mut numbers: Vec<_> = names.filter_map(|name| number(name.to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn options_file(database: &Path, number: u64) -> PathBuf {
    database.join(format!("OPTIONS-{number:06}"))
}

/// Creates a database, compacts it through Rockmill, and checks its content and that it accepts writes.
fn compacts(
    paranoid_at_first: bool,
    database: &Path,
    before: impl Fn(&mut CompactionServiceInput) + Send + Sync + 'static,
    after: impl Fn() + Send + Sync + 'static,
    compact: impl FnOnce(&DB),
) {
    let rockmill = service();
    let mut options = local_options();
    options.set_paranoid_file_checks(paranoid_at_first);
    options.set_compaction_service(Changed {
        rockmill: rockmill.clone(),
        before,
        after,
    });
    let db = open(&options, database);
    let mut content = fill(&db, WRITES, 1);
    compact(&db);
    assert_done(&rockmill.stats());
    put(&db, &mut content, b"later", b"value");
    assert_content(&db, &content);
}

fn set(db: &DB, option: (&str, &str)) {
    db.set_options(&[option]).expect("the option is mutable");
}

/// Makes the message name the OPTIONS file before the newest one, as RocksDB does while it writes the newest.
fn name_older(database: &Path, message: &mut CompactionServiceInput) -> PathBuf {
    let [.., older, newest] = options_files(database)[..] else {
        panic!("SetOptions has written another OPTIONS file");
    };
    message.options_file_number = older;
    options_file(database, newest)
}

#[test]
fn options_that_were_written_after_the_job_was_made_are_followed() {
    for option in [
        ("paranoid_file_checks", "true"),
        // kVerifyIteration and kEnableForRemoteCompaction.
        ("verify_output_flags", "2050"),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = directory.path().to_owned();
        let before = move |message: &mut CompactionServiceInput| {
            name_older(&database, message);
        };
        compacts(
            false,
            directory.path(),
            before,
            || (),
            |db| {
                set(db, option);
                compact_everything(db);
            },
        );
    }
}

#[test]
fn options_that_are_still_being_written_may_ask_for_the_hash() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let hidden = |database: &Path| database.join("OPTIONS-000999.dbtmp");
    let database = directory.path().to_owned();
    let before = move |message: &mut CompactionServiceInput| {
        let newest = name_older(&database, message);
        fs::rename(newest, hidden(&database)).expect("it is there");
    };
    let database = directory.path().to_owned();
    let after = move || fs::remove_file(hidden(&database)).expect("it is still there");
    compacts(false, directory.path(), before, after, |db| {
        set(db, ("paranoid_file_checks", "true"));
        compact_everything(db);
    });
}

#[test]
fn a_compaction_that_waited_for_a_thread_keeps_the_options_of_its_picking() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (picked, is_picked) = mpsc::sync_channel(1);
    let (changed, are_changed) = mpsc::sync_channel(1);
    let are_changed = Mutex::new(Some(are_changed));
    let database = directory.path().to_owned();
    let before = move |message: &mut CompactionServiceInput| {
        // Only for the first job.
        let Some(are_changed) = are_changed.lock().expect("no panic").take() else {
            return;
        };
        picked.send(()).expect("someone waits");
        are_changed.recv().expect("options change");
        let newest = options_files(&database).pop();
        message.options_file_number = newest.expect("there is one");
    };
    compacts(
        true,
        directory.path(),
        before,
        || (),
        |db| {
            std::thread::scope(|scope| {
                scope.spawn(|| compact_everything(db));
                is_picked.recv().expect("a job comes");
                set(db, ("paranoid_file_checks", "false"));
                changed.send(()).expect("the job waits");
            });
        },
    );
}
