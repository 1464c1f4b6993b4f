//! Tests that run again, and tests that are skipped.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rockmill_testkit::machine::{
    Mount, again_as_nobody, again_where_mounting_is_allowed, is_superuser, skipped,
};

#[test]
fn a_test_without_rights_may_not_enter_the_superusers_folder() {
    if is_superuser() {
        return again_as_nobody("a_test_without_rights_may_not_enter_the_superusers_folder");
    }
    let own = tempfile::tempdir().expect("a temporary folder");
    assert!(own.path().read_dir().is_ok());
    let own_uid = own.path().metadata().expect("it is there").uid();
    if fs::metadata("/proc/1").is_ok_and(|first| first.uid() == own_uid) {
        return skipped("the first process is this user's");
    }
    assert!(fs::read_dir("/proc/1/fd").is_err());
}

#[test]
fn what_is_mounted_is_a_file_system_of_its_size_until_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk");
    let Some(disk) = Mount::memory("64k", path.clone()) else {
        return again_where_mounting_is_allowed(
            "what_is_mounted_is_a_file_system_of_its_size_until_the_end",
        );
    };
    fs::write(disk.path().join("small"), [1; 1 << 10]).expect("there is room");
    assert!(fs::write(disk.path().join("large"), [1; 1 << 20]).is_err());
    drop(disk);
    assert_eq!(path.read_dir().expect("it is there").count(), 0);
}

#[test]
fn a_skipped_test_adds_a_line() {
    const SKIPS: &str = "ROCKMILL_TEST_SKIPS";
    if env::var_os(SKIPS).is_some() {
        return skipped("for a reason");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let skips = folder.path().join("skips");
    for _ in 0..2 {
        let output = Command::new(env::current_exe().expect("a path"))
            .args(["--exact", "a_skipped_test_adds_a_line"])
            .env("ROCKMILL_SKIPS", &skips)
            .env(SKIPS, "1")
            .output();
        assert!(output.expect("it starts").status.success());
    }
    let lines = "testing: a_skipped_test_adds_a_line: for a reason\n".repeat(2);
    assert_eq!(fs::read_to_string(&skips).expect("readable"), lines);
}
