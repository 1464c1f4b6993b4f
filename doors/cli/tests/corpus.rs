//! Every command that reads, over databases that RocksDB 3.13 to 10.4 and LevelDB wrote, copied to another path.
//!
//! The archive has a folder for each writer with two or three databases, and the contents as that writer's own
//! iterators returned them. `corpus/Generate.java` and `corpus/leveldb.py` describe them; `scripts/corpus.sh` makes the
//! archive.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BAD_DATA, DONE, INCOMPLETE, WRONG_USAGE, snapshot, sst_files, text};
use rust_rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, MergeOperands, Options};
use serde_json::Value;
use tempfile::TempDir;

const ARCHIVE: &[u8] = include_bytes!("data/corpus.tar.zst");

/// The writers, by the folders of the archive.
const WRITERS: [&str; 11] = [
    "leveldb", "3.13.1", "4.13.5", "5.8.7", "5.18.4", "6.8.1", "6.20.3", "7.8.3", "8.10.0",
    "9.8.4", "10.4.2",
];

/// The kinds of databases of a writer; some have no `legacy` one.
const KINDS: [&str; 3] = ["once", "again", "legacy"];

/// Number of databases.
const DATABASES: usize = 25;

/// The family whose rows need a merge operator, and the argument that states it.
const MERGED: &str = "merged";
const OPERATOR: [&str; 2] = ["--merge-operator", "merged=stringappend"];

/// The family whose comparator is RocksDB's reverse one.
const REVERSED: &str = "reversed";

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A database of the corpus, in a path that its writer did not know.
struct Database {
    writer: &'static str,
    kind: &'static str,
    name: String,
    dir: PathBuf,
    /// Entries of each column family in the order of its keys.
    families: BTreeMap<String, Entries>,
    /// Holds the copy.
    folder: TempDir,
}

impl Database {
    /// Copies one of a writer's databases out of the archive.
    fn unpack(unpacked: &Path, writer: &'static str, kind: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let dir = folder.path().join("copy");
        copy(&unpacked.join(writer).join(kind), &dir);
        let contents = unpacked.join(writer).join(format!("{kind}.txt"));
        let mut families = BTreeMap::<_, Entries>::new();
        for line in fs::read_to_string(contents).expect("contents").lines() {
            let [family, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line} is no entry");
            };
            let entries = families.entry(family.to_owned()).or_default();
            entries.push((bytes(key), bytes(value)));
        }
        Self {
            writer,
            kind,
            name: format!("{writer}/{kind}"),
            dir,
            families,
            folder,
        }
    }

    /// Another copy in the same temporary folder.
    fn again(&self, name: &str) -> PathBuf {
        let dir = self.folder.path().join(name);
        copy(&self.dir, &dir);
        dir
    }

    /// Whether RocksDB 11 refuses its files, whose footers have LevelDB's magic number.
    fn is_legacy(&self) -> bool {
        self.writer == "leveldb" || self.kind == "legacy"
    }

    /// Whether its writer knew range deletions.
    fn has_range_deletions(&self) -> bool {
        !["leveldb", "3.13.1", "4.13.5"].contains(&self.writer)
    }

    /// Whether there is an OPTIONS file, which versions from 4.3 on write.
    fn has_options(&self) -> bool {
        !["leveldb", "3.13.1"].contains(&self.writer)
    }

    /// Whether the command may decline the rows of a column family: they need RocksDB, which opens no legacy files, and
    /// no database without OPTIONS.
    fn may_decline(&self, family: &str) -> bool {
        let is_open = self.has_options() && !self.is_legacy();
        let needs_rocksdb = match family {
            MERGED | REVERSED => true,
            "two" => self.has_range_deletions(),
            _ => false,
        };
        needs_rocksdb && !is_open
    }

    /// The additional arguments that its rows need.
    fn operator(&self) -> &'static [&'static str] {
        match self.families.contains_key(MERGED) {
            true => &OPERATOR,
            false => &[],
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new folder");
    for (path, bytes) in snapshot(from) {
        fs::write(to.join(path.file_name().expect("a file")), bytes).expect("written");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    pairs.map(byte).collect()
}

/// Calls `check` with each database, and fails with the problems of all of them.
fn each(check: impl Fn(&Database, &mut Problems)) {
    let unpacked = tempfile::tempdir().expect("a temporary directory");
    let tar = zstd::decode_all(ARCHIVE).expect("the archive is sound");
    let archive = tar::Archive::new(&*tar).unpack(unpacked.path());
    archive.expect("the archive can be unpacked");
    let mut all = String::new();
    let (mut databases, mut checks) = (0, 0);
    for writer in WRITERS {
        for kind in KINDS {
            if !unpacked.path().join(writer).join(kind).exists() {
                continue;
            }
            databases += 1;
            let database = Database::unpack(unpacked.path(), writer, kind);
            let before = snapshot(&database.dir);
            let mut problems = Problems::default();
            check(&database, &mut problems);
            problems.require(before == snapshot(&database.dir), || {
                "its files changed".to_owned()
            });
            checks += problems.checks;
            for problem in problems.found {
                writeln!(all, "{}: {problem}", database.name).expect("memory");
            }
        }
    }
    assert_eq!(databases, DATABASES);
    assert!(all.is_empty(), "of {checks} checks:\n{all}");
}

/// Checks of a database that did not hold.
#[derive(Default)]
struct Problems {
    checks: usize,
    found: Vec<String>,
}

impl Problems {
    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.found.push(what());
        }
    }
}

/// A command that ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn run(args: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_rockmill"))
            .args(args)
            .output()
            .expect("the command starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().expect("it ends by itself"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or(Value::Null)
    }

    /// The exit code and the first lines of the output.
    fn said(&self) -> String {
        let lines = self.err.lines().chain(self.out.lines()).take(3);
        let lines: Vec<_> = lines
            .map(|line| line.chars().take(200).collect::<String>())
            .collect();
        format!("exit code {}: {}", self.code, lines.join(" / "))
    }

    /// Whether it explains in a sentence that sound data could not be read. Sound data is never called damaged.
    fn declines(&self) -> bool {
        let said = self.err.to_lowercase();
        let blames = ["corrupt", "damaged"]
            .iter()
            .any(|word| said.contains(word));
        matches!(self.code, BAD_DATA | INCOMPLETE) && !said.is_empty() && !blames
    }
}

/// Returns the rows that `rockmill sql --format json` printed, in the order of their bytes.
#[cfg(feature = "sql")]
fn rows(out: &str) -> Entries {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).ok()?;
        Some((bytes(row["key"].as_str()?), bytes(row["value"].as_str()?)))
    };
    let mut rows: Entries = out.lines().filter_map(row).collect();
    rows.sort();
    rows
}

/// Lets RocksDB read all families of a database, or returns its error.
fn read_by_rocksdb(dir: &Path) -> Result<BTreeMap<String, Entries>, rust_rocksdb::Error> {
    fn append(_: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
        let parts: Vec<_> = value.into_iter().chain(operands).collect();
        Some(parts.join(&b","[..]))
    }
    let log_is_no_error = false;
    let families = DB::list_cf(&Options::default(), dir)?;
    let options = |name: &str| {
        let mut options = Options::default();
        if name == REVERSED {
            let reverse = |a: &[u8], b: &[u8]| b.cmp(a);
            let name = c"rocksdb.ReverseBytewiseComparator";
            options.set_comparator(name, Box::new(reverse));
        }
        if name == MERGED {
            options.set_merge_operator_associative(c"StringAppendOperator", append);
        }
        options
    };
    let descriptors = families
        .iter()
        .map(|name| ColumnFamilyDescriptor::new(name.as_str(), options(name)));
    let db =
        DB::open_cf_descriptors_read_only(&Options::default(), dir, descriptors, log_is_no_error)?;
    let read = |name: &String| {
        let family = db.cf_handle(name).expect("it was listed");
        let entries = db.iterator_cf(family, IteratorMode::Start);
        let entries: Result<Entries, _> = entries
            .map(|entry| entry.map(|(key, value)| (key.into(), value.into())))
            .collect();
        Ok((name.clone(), entries?))
    };
    families.iter().map(read).collect()
}

#[test]
fn each_writer_left_logs_and_tables_in_several_levels() {
    each(|database, problems| {
        let names = snapshot(&database.dir);
        let logs = names.iter().filter(|(path, bytes)| {
            path.extension().is_some_and(|e| e == "log") && !bytes.is_empty()
        });
        problems.require(logs.count() > 0, || "no log".to_owned());
        let tables = names.keys().filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sst" || extension == "ldb")
        });
        let tables = tables.count();
        problems.require(tables > 1, || format!("{tables} tables"));
        let families = if database.writer == "leveldb" { 1 } else { 2 };
        problems.require(database.families.len() >= families, || {
            "few families".to_owned()
        });
        let entries = database.families.values().map(Vec::len).sum::<usize>();
        problems.require(entries > 250, || format!("{entries} entries"));
    });
}

#[test]
fn rocksdb_reads_what_the_writers_read() {
    each(|database, problems| match read_by_rocksdb(&database.dir) {
        Err(error) => problems.require(
            database.is_legacy() && error.to_string().contains("Unsupported legacy"),
            || error.to_string(),
        ),
        Ok(found) => problems.require(found == database.families, || "other entries".to_owned()),
    });
}

#[cfg(feature = "sql")]
#[test]
fn sql_counts_and_returns_what_the_writers_read() {
    each(|database, problems| {
        let sql = |statement: &str, more: &[&str]| {
            let path = text(&database.dir);
            let args = [
                "sql", path, "--device", "cpu", "--format", "json", statement,
            ];
            Ended::run(&[&args, more].concat())
        };
        for (family, entries) in &database.families {
            let may_decline = database.may_decline(family);
            let operator: &[&str] = if family == MERGED { &OPERATOR } else { &[] };
            let counted = sql(&format!("select count(*) as n from \"{family}\""), operator);
            let is_right = counted.code == DONE && counted.json()["n"] == entries.len();
            problems.require(is_right || (may_decline && counted.declines()), || {
                format!("sql counts {family}: {}", counted.said())
            });
            let listed = sql(&format!("select key, value from \"{family}\""), operator);
            let mut expected = entries.clone();
            expected.sort();
            let is_right = listed.code == DONE && rows(&listed.out) == expected;
            problems.require(is_right || (may_decline && listed.declines()), || {
                format!("sql reads {family}: {}", listed.said())
            });
        }
    });
}

#[cfg(feature = "sql")]
#[test]
fn sql_merges_nothing_with_an_operator_that_is_not_stated() {
    each(|database, problems| {
        if !database.families.contains_key(MERGED) {
            return;
        }
        let statement = "select count(*) from \"merged\" where octet_length(value) > 0";
        let ended = Ended::run(&["sql", text(&database.dir), "--device", "cpu", statement]);
        let says = ended.err.contains(MERGED) && ended.err.contains("--merge-operator");
        let declines = database.may_decline(MERGED) && ended.declines();
        problems.require(ended.code != DONE && (says || declines), || {
            format!("sql over merge operands: {}", ended.said())
        });
    });
}

#[test]
fn verify_and_inspect_find_every_file_sound() {
    each(|database, problems| {
        let verified = Ended::run(&["verify", text(&database.dir), "--json"]);
        let rows = verified.json();
        let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
        let tables = snapshot(&database.dir).into_keys().filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sst" || extension == "ldb")
        });
        let tables: Vec<_> = tables.collect();
        problems.require(!rows.is_empty() && rows.len() <= tables.len(), || {
            format!("verify has {} rows", rows.len())
        });
        // A file in the order of another comparator may be unchecked in part, which the exit code reports.
        let unchecked = rows.iter().filter(|row| {
            row["not_checked"]
                .as_array()
                .is_some_and(|parts| !parts.is_empty())
        });
        let unchecked: Vec<_> = unchecked.collect();
        let may_be_unchecked = |row: &&Value| row["column_family"] == REVERSED;
        problems.require(
            verified.code
                == if unchecked.is_empty() {
                    DONE
                } else {
                    INCOMPLETE
                }
                && unchecked.iter().all(may_be_unchecked),
            || format!("verify: {}", verified.said()),
        );
        for table in tables {
            let name = table.file_name().expect("a file").to_string_lossy();
            let inspected = Ended::run(&["inspect", text(&table), "--json"]);
            problems.require(inspected.code == DONE, || {
                format!("inspect {name}: {}", inspected.said())
            });
            let verified = Ended::run(&["verify", text(&table)]);
            let of_database = rows.iter().find(|row| row["file"] == name.as_ref());
            let is_unchecked = unchecked.iter().any(|row| Some(*row) == of_database);
            let agrees = of_database.is_none()
                || verified.code == DONE
                || (is_unchecked && verified.code == INCOMPLETE);
            problems.require(agrees, || format!("verify {name}: {}", verified.said()));
        }
    });
}

#[test]
fn the_doctor_names_every_family_and_calls_nothing_damaged() {
    each(|database, problems| {
        let ended = Ended::run(&["doctor", text(&database.dir), "--json"]);
        if !database.has_options() {
            problems.require(ended.declines() && ended.err.contains("OPTIONS"), || {
                format!("doctor: {}", ended.said())
            });
            return;
        }
        let report = ended.json();
        let families = report["column_families"].as_array();
        let families = families.map_or(&[][..], Vec::as_slice);
        let names = families.iter().map(|family| family["name"].as_str());
        problems.require(
            names.eq(database.families.keys().map(|name| Some(name.as_str()))),
            || format!("doctor: {}", ended.said()),
        );
        let accepted = report["accepted"] == true;
        let code = if accepted { DONE } else { BAD_DATA };
        problems.require(ended.code == code, || format!("doctor: {}", ended.said()));
        for family in families {
            let declines = family["declines"].as_array();
            for decline in declines.map_or(&[][..], Vec::as_slice) {
                let (reason, what) = (&decline["reason"], decline["what"].as_str());
                let is_known = !["damaged", "error", "input-missing", "unsupported-format"]
                    .iter()
                    .any(|bad| reason == bad);
                let is_named = what.is_some_and(|what| !what.ends_with("is "));
                // The comparator of all column families except one is bytewise, although old versions wrote another
                // name.
                let is_right = reason != "comparator" || family["name"] == REVERSED;
                problems.require(is_known && is_named && is_right, || {
                    format!("doctor of {}: {decline}", family["name"])
                });
            }
        }
    });
}

#[test]
fn a_view_is_foreseen_for_every_bytewise_family() {
    each(|database, problems| {
        for (family, entries) in &database.families {
            let args = ["view", text(&database.dir), "--family", family, "--json"];
            let ended = Ended::run(&args);
            let keys = ended.json()["max_keys"].as_u64();
            let fits = keys >= Some(entries.len() as u64);
            // GPUs do not read such files, so the view would ask RocksDB for their keys.
            let asks = database.is_legacy() && ended.out.contains("format_version 0 or 1");
            let is_expected = ended.code == DONE && (fits || asks);
            let may_decline = family == REVERSED || database.may_decline(family);
            problems.require(is_expected || (may_decline && ended.declines()), || {
                format!("view of {family}: {}", ended.said())
            });
        }
    });
}

#[test]
fn compact_keeps_the_contents_or_leaves_the_database_alone() {
    each(|database, problems| {
        let version = database.writer.split('.').next();
        let is_before_7 = version.is_some_and(|major| major.parse::<u32>().is_ok_and(|v| v < 7));
        for family in database.families.keys() {
            let dir = database.again(&format!("compacted-{family}"));
            let before = snapshot(&dir);
            let args = ["compact", text(&dir), "--column-family", family, "--force"];
            let args = [&args[..], database.operator()].concat();
            let foretold = Ended::run(&[&args[..], &["--dry-run"]].concat());
            problems.require(before == snapshot(&dir), || {
                format!("a dry run over {family} wrote")
            });
            let ended = Ended::run(&args);
            problems.require(foretold.code == ended.code, || {
                let (first, then) = (foretold.said(), ended.said());
                format!("compact {family}: foretold {first}, then {then}")
            });
            // RocksDB 11 reads the filter policy of OPTIONS before 7.0 as one that writes no filters.
            let has_old_filter =
                is_before_7 && family == "default" && database.name.ends_with("again");
            let is_open = database.has_options() && !database.is_legacy();
            if !is_open || has_old_filter {
                let refused = ended.declines() && before == snapshot(&dir);
                problems.require(refused, || format!("compact {family}: {}", ended.said()));
                continue;
            }
            problems.require(ended.code == DONE, || {
                format!("compact {family}: {}", ended.said())
            });
            let after = read_by_rocksdb(&dir);
            problems.require(after.as_ref() == Ok(&database.families), || {
                format!("compact {family}: other contents: {:?}", after.err())
            });
            if ended.code == DONE {
                let verified = Ended::run(&["verify", text(&dir)]);
                problems.require(matches!(verified.code, DONE | INCOMPLETE), || {
                    format!("verify after compact {family}: {}", verified.said())
                });
                let written = sst_files(&dir)
                    .iter()
                    .any(|path| !before.contains_key(path));
                problems.require(written, || format!("compact {family} wrote no file"));
            }
        }
    });
}

#[test]
fn range_deletions_are_in_files_and_logs_of_every_writer_that_knew_them() {
    each(|database, problems| {
        let counted = sst_files(&database.dir).into_iter().map(|table| {
            let inspected = Ended::run(&["inspect", text(&table), "--entries", "--json"]);
            let deletions = inspected.json()["range_deletions"].as_array().map(Vec::len);
            usize::from(deletions > Some(0))
        });
        let files = counted.sum::<usize>();
        problems.require((files > 1) == database.has_range_deletions(), || {
            format!("{files} files with range tombstones")
        });
    });
}

#[test]
fn a_column_family_that_is_not_there_is_wrong_usage() {
    each(|database, problems| {
        let args = ["compact", text(&database.dir), "--column-family", "none"];
        let ended = Ended::run(&args);
        let code = match database.has_options() {
            true => WRONG_USAGE,
            false => BAD_DATA,
        };
        problems.require(ended.code == code, || ended.said());
    });
}
