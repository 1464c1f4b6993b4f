//! Options that change when compactions begin: RocksDB may pick a compaction before it has written the OPTIONS file
//! that the job should name.

use rockmill_tests::content::assert_content;
use rockmill_tests::harness::{
    assert_done, assert_nothing_staged, fill, open, options, put, service, wait_for_compact,
};

const WRITES: usize = 6_000;
/// Number of databases; each has one chance to hit the moment.
const DATABASES: u64 = 12;

/// Opens databases whose files wait for compaction. Changes `option` together with options that let RocksDB begin.
fn goes_on_after(option: (&str, &str)) {
    for seed in 0..DATABASES {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let service = service();
        let mut options = options(&service);
        options.set_level_zero_file_num_compaction_trigger(2);
        let db = open(&options, directory.path());
        let mut content = fill(&db, WRITES, seed);
        db.set_options(&[("disable_auto_compactions", "false"), option])
            .expect("both are mutable");
        wait_for_compact(&db);
        put(&db, &mut content, b"later", b"value");
        db.flush().expect("flush");
        wait_for_compact(&db);
        assert_done(&service.stats());
        assert_content(&db, &content);
        drop(db);
        assert_nothing_staged(directory.path());
    }
}

#[test]
fn a_database_that_begins_to_check_its_files_goes_on() {
    goes_on_after(("paranoid_file_checks", "true"));
}

#[test]
fn a_database_that_begins_to_verify_outputs_goes_on() {
    // kVerifyIteration and kEnableForRemoteCompaction.
    goes_on_after(("verify_output_flags", "2050"));
}
