//! Transaction databases: with two-phase commit only if the user declares WriteCommitted, others always.

use std::path::Path;
use std::time::{Duration, Instant};

use rockmill_tests::content::Content;
use rockmill_tests::harness::{assert_declined, assert_done, assert_jobs_add_up, options, service};
use rockmill_tests::reasons::{ALLOW_2PC, SHUTTING_DOWN};
use rust_rocksdb::{
    IteratorMode, OptimisticTransactionDB, TransactionDB, TransactionDBOptions, TxnDBWritePolicy,
};

use crate::trial::{declines, plain, takes};

/// Number of files in L0 that triggers a compaction: the binding has no manual compaction for transaction databases.
const TRIGGER: i32 = 2;
/// Longest time to wait for a job; jobs take far less.
const TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Creates the service of a user who declares that the write policy is WriteCommitted.
fn trusting_service() -> rockmill::Service {
    rockmill::Service::builder()
        .min_job_bytes(0)
        .threads(2)
        .write_committed()
        .build()
        .expect("the settings are good")
}

#[test]
fn two_phase_commit() {
    declines(&[ALLOW_2PC], |options| options.set_allow_2pc(true), plain);
}

/// Writes transactions, some of them prepared, waits for automatic compactions, and checks the content, also after
/// reopening.
fn run(policy: TxnDBWritePolicy, service: &rockmill::Service, path: &Path) {
    let mut options = options(service);
    options.set_disable_auto_compactions(false);
    options.set_level_zero_file_num_compaction_trigger(TRIGGER);
    let mut transactions = TransactionDBOptions::default();
    transactions.set_write_policy(policy);
    let db: TransactionDB = TransactionDB::open(&options, &transactions, path).expect("open");
    let mut content = Content::new();
    for round in 0..4_u8 {
        for number in 0..100_u8 {
            let transaction = db.transaction();
            let (kept, dropped) = ([b'k', number], [b'd', round, number]);
            transaction.put(kept, [round]).expect("put");
            content.insert(kept.to_vec(), vec![round]);
            if round > 0 {
                transaction
                    .delete([b'd', round - 1, number])
                    .expect("delete");
                content.remove([b'd', round - 1, number].as_slice());
            }
            transaction.put(dropped, b"value").expect("put");
            content.insert(dropped.to_vec(), b"value".to_vec());
            transaction.set_name(&[b'x', round, number]).expect("name");
            transaction.prepare().expect("prepare");
            transaction.commit().expect("commit");
        }
        db.flush().expect("flush");
    }
    wait_for_jobs(service);
    check(&db, &content);
    drop(db);
    check(
        &TransactionDB::open(&options, &transactions, path).expect("open"),
        &content,
    );
}

/// Waits until a job has come and all jobs have ended.
fn wait_for_jobs(service: &rockmill::Service) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let stats = service.stats();
        let ended = stats.jobs_done + stats.jobs_declined + stats.jobs_failed;
        if stats.jobs_offered > 0 && ended == stats.jobs_offered {
            return;
        }
        assert!(Instant::now() < end, "no job ended: {stats}");
        std::thread::sleep(PAUSE);
    }
}

fn check(db: &TransactionDB, content: &Content) {
    let found: Content = db
        .iterator(IteratorMode::Start)
        .map(|pair| pair.expect("readable"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert!(
        found == *content,
        "{} keys instead of {}",
        found.len(),
        content.len()
    );
}

#[test]
fn a_transaction_database_that_the_user_does_not_vouch_for() {
    for policy in [
        TxnDBWritePolicy::WriteCommitted,
        TxnDBWritePolicy::WritePrepared,
        TxnDBWritePolicy::WriteUnprepared,
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let service = service();
        run(policy, &service, directory.path());
        // Automatic compactions may run when the database closes.
        assert_declined(&service.stats(), &[ALLOW_2PC, SHUTTING_DOWN]);
    }
}

#[test]
fn a_write_committed_transaction_database_that_the_user_vouches_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = trusting_service();
    run(TxnDBWritePolicy::WriteCommitted, &service, directory.path());
    let stats = service.stats();
    // Automatic compactions may run when the database closes.
    let other = stats
        .jobs_declined_by_reason
        .keys()
        .find(|code| *code != SHUTTING_DOWN);
    assert_eq!(other, None, "{stats}");
    assert!(stats.jobs_done > 0, "{stats}");
    assert_eq!(stats.jobs_failed, 0, "{stats}");
    assert_jobs_add_up(&stats);
}

#[test]
fn vouching_does_not_change_ordinary_databases() {
    takes(|_| {}, plain);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = trusting_service();
    let db = rockmill_tests::harness::open(&options(&service), directory.path());
    let content = plain(&db);
    rockmill_tests::harness::compact_everything(&db);
    rockmill_tests::content::assert_content(&db, &content);
    assert_done(&service.stats());
}

#[test]
fn an_optimistic_transaction_database_is_no_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db: OptimisticTransactionDB =
        OptimisticTransactionDB::open(&options(&service), directory.path()).expect("open");
    let mut content = Content::new();
    for round in 0..4_u8 {
        for number in 0..100_u8 {
            let transaction = db.transaction();
            transaction.put([number], [round]).expect("put");
            transaction.commit().expect("commit");
            content.insert(vec![number], vec![round]);
        }
        db.flush().expect("flush");
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let found: Content = db
        .iterator(IteratorMode::Start)
        .map(|pair| pair.expect("readable"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(found, content);
    assert_done(&service.stats());
}
