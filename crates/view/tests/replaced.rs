//! A refresh reads the database that has the path then, though it may look like the one before.

mod helpers;

use rockmill_testkit::scans as common;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use helpers::*;
use rockmill_view::{Loaded, View};
use rust_rocksdb::{DB, Options};

const KEYS: u32 = 1000;

/// The place of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    InLog,
    InFile,
}

fn database(path: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_avoid_flush_during_recovery(true);
    DB::open(&options, path).expect("the database opens")
}

fn put(db: &DB, letter: u8, written: Written) {
    for number in 0..KEYS {
        db.put(numbered(number), [letter; 40]).expect("written");
    }
    if written == Written::InFile {
        db.flush().expect("flushed");
    }
}

/// The letter that all values have.
fn letter(view: &View) -> u8 {
    let keys: Vec<_> = (0..KEYS).map(numbered).collect();
    let keys: Vec<_> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let values = view.get(&keys).expect("values").into_iter();
    let letters: BTreeSet<_> = values.map(|value| value.expect("a value")[0]).collect();
    assert_eq!(letters.len(), 1, "{letters:?}");
    *letters.first().expect("a letter")
}

fn open(path: &Path) -> View {
    let view = builder(&directory(path), "default").open();
    view.expect("a view")
}

fn reason(view: &View) -> String {
    match view.refresh().expect("refreshed").how {
        Loaded::Ranges { reason, .. } => reason,
        how => panic!("the whole database is read, not {how:?}"),
    }
}

/// Copies the files of a database, whose identity the copy has as well.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}

/// Lets the link lead to a folder.
fn switch(link: &Path, to: &Path) {
    let new = link.with_extension("new");
    symlink(to, &new).expect("a link");
    fs::rename(new, link).expect("renamed");
}

#[test]
fn a_database_that_was_made_again_is_read_again() {
    for written in [Written::InFile, Written::InLog] {
        for has_more in [false, true] {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("db");
            put(&database(&path), b'A', written);
            let view = open(&path);
            assert_eq!(letter(&view), b'A');
            fs::remove_dir_all(&path).expect("removed");
            let db = database(&path);
            put(&db, b'B', written);
            if has_more {
                db.put("another", "B").expect("written");
                db.flush().expect("flushed");
            }
            drop(db);
            let reason = reason(&view);
            assert!(reason.contains("another database"), "{reason}");
            assert_eq!(letter(&view), b'B', "{written:?}, {has_more}");
        }
    }
}

#[test]
fn a_link_that_leads_to_another_database_is_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    put(&database(&at("v1")), b'A', Written::InFile);
    put(&database(&at("v2")), b'B', Written::InFile);
    symlink(at("v1"), at("current")).expect("a link");
    let view = open(&at("current"));
    assert_eq!(letter(&view), b'A');
    switch(&at("current"), &at("v2"));
    reason(&view);
    assert_eq!(letter(&view), b'B');
}

/// Two copies of a database, to which as much was written since.
fn copies(dir: &Path) -> [PathBuf; 2] {
    let first = dir.join("v0");
    put(&database(&first), b'-', Written::InFile);
    [b'A', b'B'].map(|letter| {
        let path = dir.join(char::from(letter).to_string());
        copy(&first, &path);
        put(&database(&path), letter, Written::InLog);
        path
    })
}

#[test]
fn copies_of_a_database_are_told_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let [one, other] = copies(dir.path());
    let current = dir.path().join("current");
    symlink(&one, &current).expect("a link");
    let view = open(&current);
    assert_eq!(letter(&view), b'A');
    switch(&current, &other);
    reason(&view);
    assert_eq!(letter(&view), b'B');
}

#[test]
fn a_copy_that_is_restored_into_the_same_folder_is_read_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let [one, other] = copies(dir.path());
    let view = open(&one);
    assert_eq!(letter(&view), b'A');
    copy(&other, &one);
    let refreshed = view.refresh().expect("refreshed").how;
    assert_ne!(refreshed, Loaded::Nothing);
    assert_eq!(letter(&view), b'B');
}
