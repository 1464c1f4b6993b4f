//! Databases that close while jobs run.

use std::path::Path;

use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::gate::{Gate, Step};
use rockmill_tests::harness::{
    assert_declined, assert_nothing_staged, compact_everything, fill, local_options, open, options,
    put,
};
use rockmill_tests::reasons::CANCELLED;
use rust_rocksdb::DB;

const WRITES: usize = 6_000;
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Databases of a process share RocksDB's threads; this is enough for one job each.
const BACKGROUND_JOBS: i32 = 8;

/// Opens three databases, each with its own clone of `service`, and returns them with their content.
fn three(service: &rockmill::Service, directory: &Path) -> [(DB, Content); NAMES.len()] {
    NAMES.map(|name| {
        let mut options = options(service);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        let db = open(&options, &directory.join(name));
        let content = fill(&db, WRITES, name.len() as u64);
        (db, content)
    })
}

fn gated(gate: &Gate) -> rockmill::Service {
    // Each job has one subcompaction here, and each database has one job.
    rockmill::Service::builder()
        .min_job_bytes(0)
        .threads(NAMES.len())
        .storage(gate.storage())
        .build()
        .expect("the settings are good")
}

/// Stops a job of each of three databases at `step`, and closes the first database. `meanwhile` controls the gate.
/// Checks that the other two jobs are done and that no files of the first remain.
fn close_one_of_three(step: Step, meanwhile: impl FnOnce(&Gate, &dyn Fn())) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gate = Gate::new(step);
    let service = gated(&gate);
    let databases = three(&service, directory.path());
    std::thread::scope(|scope| {
        let [first, others @ ..] = databases
            .each_ref()
            .map(|(db, _)| scope.spawn(|| compact_everything(db)));
        gate.await_threads(NAMES.len());
        databases[0].0.cancel_all_background_work(false);
        let first = std::cell::Cell::new(Some(first));
        let await_first = || {
            if let Some(first) = first.take() {
                first.join().expect("no panic");
            }
        };
        meanwhile(&gate, &await_first);
        await_first();
        for other in others {
            other.join().expect("no panic");
        }
    });
    let stats = service.stats();
    assert_eq!((stats.jobs_done, stats.jobs_failed), (2, 0), "{stats}");
    assert_eq!(
        stats.jobs_declined_by_reason.get("shutting-down"),
        Some(&1),
        "{stats}"
    );
    for ((db, content), name) in databases.into_iter().zip(NAMES) {
        assert_content(&db, &content);
        drop(db);
        let path = directory.path().join(name);
        assert_nothing_staged(&path);
        assert_content(&open(&local_options(), &path), &content);
    }
}

#[test]
fn closing_one_of_three_databases_stops_its_job_and_no_other() {
    close_one_of_three(Step::Write, |gate, _| gate.open());
}

#[test]
fn jobs_that_the_application_cancels_are_done_by_rocksdb_and_later_ones_here() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gate = Gate::new(Step::Write);
    let service = gated(&gate);
    let databases = three(&service, directory.path());
    std::thread::scope(|scope| {
        for (db, _) in &databases {
            scope.spawn(|| compact_everything(db));
        }
        gate.await_threads(NAMES.len());
        service.clone().cancel_jobs();
        gate.open();
    });
    let stats = service.stats();
    assert_declined(&stats, &[CANCELLED]);
    assert_eq!(stats.jobs_declined, 3, "{stats}");
    for ((db, mut content), name) in databases.into_iter().zip(NAMES) {
        put(&db, &mut content, b"key00000001", b"new");
        compact_everything(&db);
        assert_content(&db, &content);
        drop(db);
        assert_nothing_staged(&directory.path().join(name));
    }
    let stats = service.stats();
    assert_eq!((stats.jobs_done, stats.jobs_declined), (3, 3), "{stats}");
}

/// RocksDB sends a service no notice, and waits until its job has ended.
#[test]
fn disabling_manual_compactions_does_not_wait_for_a_cancelled_job() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gate = Gate::new(Step::Sync);
    let service = gated(&gate);
    let db = open(&options(&service), directory.path());
    let mut content = fill(&db, WRITES, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| compact_everything(&db));
        gate.await_threads(1);
        service.cancel_jobs();
        // The job's sync has not returned.
        db.disable_manual_compaction();
        gate.open();
    });
    assert_declined(&service.stats(), &[CANCELLED]);
    assert_content(&db, &content);
    db.enable_manual_compaction();
    put(&db, &mut content, b"key00000001", b"new");
    compact_everything(&db);
    assert_eq!(service.stats().jobs_done, 1);
    assert_content(&db, &content);
}

#[test]
fn closing_does_not_wait_for_a_sync() {
    close_one_of_three(Step::Sync, |gate, await_first| {
        // Its sync has not returned.
        await_first();
        gate.open();
    });
}
