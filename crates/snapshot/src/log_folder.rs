//! The folder of a database's write-ahead logs.
//!
//! The option `wal_dir` names it, but the database may have been moved or copied since. RocksDB up to 6.20 wrote the
//! database's own folder there, as the program had named it. So a folder is used only if it has the logs that the
//! MANIFEST names.

use std::io;
use std::path::{Path, PathBuf};

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_format::manifest::Tree;
use rockmill_storage::{Storage, base_name, is_backup};

use crate::closed_database::options_number;

/// The folder of a database's write-ahead logs, and the rule that found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFolder {
    /// The folder; the database's own if there is no log.
    pub path: PathBuf,
    /// The reason for this folder.
    pub source: LogSource,
}

/// Reason why a folder has the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// The caller has stated it.
    Stated {
        /// Whether it has a log that is not older than the newest one that the MANIFEST names.
        has_log: bool,
    },
    /// It is the database's own folder: it has such a log, or OPTIONS name no other folder.
    Own,
    /// The option `wal_dir` names it.
    Named,
    /// It has the last component of `wal_dir` as its name, and is in the database's folder.
    Moved {
        /// The option's value.
        wal_dir: String,
    },
    /// There is no log.
    Missing {
        /// The option's value.
        wal_dir: String,
        /// Description of what is wrong with that folder, as a relative clause.
        why: &'static str,
    },
}

impl LogFolder {
    /// Finds the folder of the logs of the database in `dir`, from its option `wal_dir` and its MANIFEST.
    ///
    /// | | first of these folders | on condition that |
    /// |---|---|---|
    /// | 1 | `stated` | it is there |
    /// | 2 | `dir` | it has a log that is not older than the newest one that the MANIFEST names, or is the folder of a backup |
    /// | 3 | `wal_dir`, or the folder of its last name in `dir` | it has no CURRENT, has a log that the MANIFEST names, and one not older than the newest of these |
    /// | 4 | `dir`, without a log | |
    ///
    /// RocksDB always leaves a log in its folder. RocksDB takes a relative `wal_dir` from the working directory of the
    /// process. A folder with CURRENT belongs to another database. A folder without the newest log belongs to another
    /// state, for example to the original of a copy.
    ///
    /// # Errors
    /// Storage if `stated` or `dir` cannot be listed, or the system denies access to `wal_dir` and no other folder has
    /// the logs.
    pub fn find(
        storage: &dyn Storage,
        dir: &Path,
        wal_dir: Option<&str>,
        tree: &Tree,
        stated: Option<&Path>,
    ) -> Result<Self> {
        let newest = tree.newest_log_number();
        if let Some(path) = stated {
            let names = storage.list(path);
            let names = names.map_err(|e| refused(path, "was stated as", &e))?;
            let has_log = first_log(&names, newest).is_some();
            return Ok(Self::new(path, LogSource::Stated { has_log }));
        }
        let names = storage.list(dir);
        let names = names.map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
        let named = wal_dir.filter(|wal_dir| !wal_dir.is_empty() && !is_backup(dir));
        let Some(wal_dir) = named.filter(|_| first_log(&names, newest).is_none()) else {
            return Ok(Self::new(dir, LogSource::Own));
        };
        let named = Path::new(wal_dir);
        if is_same(storage, dir, named) {
            return Ok(Self::new(dir, LogSource::Own));
        }
        let opened = names.iter().filter_map(|name| options_number(name)).max();
        let opened = opened.unwrap_or(0);
        let why = fault(storage, named, tree, opened);
        if matches!(why, Ok(None)) {
            return Ok(Self::new(named, LogSource::Named));
        }
        let wal_dir = wal_dir.to_owned();
        if let Some(last) = named.file_name() {
            let moved = dir.join(last);
            if matches!(fault(storage, &moved, tree, opened), Ok(None)) {
                return Ok(Self::new(&moved, LogSource::Moved { wal_dir }));
            }
        }
        let why = why.map_err(|e| refused(named, "OPTIONS name as", &e))?;
        let why = why.unwrap_or_default();
        Ok(Self::new(dir, LogSource::Missing { wal_dir, why }))
    }

    fn new(path: &Path, source: LogSource) -> Self {
        Self {
            path: path.to_owned(),
            source,
        }
    }

    /// The folder, for a reader that needs the logs.
    ///
    /// # Errors
    /// Storage if it is missing.
    pub fn required(self) -> Result<PathBuf> {
        match (&self.source, self.sentence()) {
            (LogSource::Missing { .. }, Some(sentence)) => {
                let what = format!(
                    "{sentence}; name the folder of its logs, or its own folder if there are none, as wal_dir"
                );
                let error = Error::new(ErrorKind::Storage, what);
                Err(error.in_file(&self.path.display().to_string()))
            }
            _ => Ok(self.path),
        }
    }

    /// Whether the logs belong to this database alone for certain. RocksDB deletes logs after it has replayed them.
    pub fn may_be_replayed(&self) -> bool {
        matches!(self.source, LogSource::Stated { .. } | LogSource::Own)
    }

    /// Returns a sentence without a full stop about the folder that has the logs, or the folder that is missing. `None`
    /// if the database's own folder has them.
    pub fn sentence(&self) -> Option<String> {
        let path = self.path.display();
        Some(match &self.source {
            LogSource::Own => return None,
            LogSource::Stated { has_log: true } => format!("the write-ahead log is in {path}"),
            LogSource::Stated { has_log: false } => {
                format!(
                    "the write-ahead log would be in {path}, which has none that the MANIFEST names"
                )
            }
            LogSource::Named => {
                format!("the write-ahead log is in {path}, the wal_dir of its OPTIONS")
            }
            LogSource::Moved { wal_dir } => format!(
                "the write-ahead log is in {path}, as the wal_dir of its OPTIONS, {wal_dir}, has not the logs that the \
                 MANIFEST names"
            ),
            LogSource::Missing { wal_dir, why } => {
                format!(
                    "no write-ahead log is read: the wal_dir of its OPTIONS is {wal_dir}, {why}"
                )
            }
        })
    }
}

fn refused(path: &Path, how: &str, error: &io::Error) -> Error {
    let path = path.display();
    let what =
        format!("cannot list {path}, which {how} the folder of its write-ahead logs: {error}");
    Error::new(ErrorKind::Storage, what)
}

fn is_same(storage: &dyn Storage, dir: &Path, other: &Path) -> bool {
    match (storage.folder_id(dir), storage.folder_id(other)) {
        (Ok(dir), Ok(other)) => dir == other,
        _ => false,
    }
}

/// Returns why a folder outside of the database does not have its logs; `None` if it does.
///
/// The MANIFEST names the log that was begun before the last flush. If nothing was flushed since the database was
/// opened, the number may name no log: recovery writes the number behind that of the last log, and a new database has
/// 0. The log that was begun then has a smaller number than the OPTIONS file from the end of opening, `opened`. Before that
/// end, another column family may name a log, or the MANIFEST tracks one. RocksDB deletes logs in their order, so the folder
/// then has all later ones.
///
/// # Errors
/// Errors of the system, if the folder may be there.
fn fault(
    storage: &dyn Storage,
    path: &Path,
    tree: &Tree,
    opened: u64,
) -> io::Result<Option<&'static str>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let names = match storage.list(path) {
        Err(e) if matches!(e.kind(), NotFound | NotADirectory) => {
            return Ok(Some("which does not exist"));
        }
        names => names?,
    };
    if names.iter().any(|name| name == "CURRENT") {
        return Ok(Some("which is the folder of another database"));
    }
    let newest = tree.newest_log_number();
    let is_named = |number: u64| {
        let mut families = tree.column_families.values();
        families.any(|family| family.log_number == number) || tree.synced_logs.contains_key(&number)
    };
    let mut numbers = names.iter().filter_map(|name| log_number(name));
    match first_log(&names, newest) {
        Some(first) if first < opened || numbers.any(is_named) => Ok(None),
        _ => Ok(Some("which has not the logs that the MANIFEST names")),
    }
}

/// Returns the lowest number of a log that is not older than `newest`.
fn first_log(names: &[String], newest: u64) -> Option<u64> {
    let numbers = names.iter().filter_map(|name| log_number(name));
    numbers.filter(|&number| number >= newest).min()
}

/// Parses the number in the name of a log, `000012.log`; `None` for other files.
pub fn log_number(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".log")?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rockmill_format::manifest::ColumnFamily;
    use rockmill_storage::LocalStorage;
    use tempfile::TempDir;

    use super::*;

    /// A folder with a database, whose MANIFEST names log 12, and other folders.
    struct Case(TempDir);

    impl Case {
        fn new(files: &[&str]) -> Self {
            let case = Self(tempfile::tempdir().expect("a folder"));
            for file in [&["db/CURRENT", "db/OPTIONS-000009"][..], files].concat() {
                let path = case.path(file);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                fs::write(path, "").expect("written");
            }
            case
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn find_with(
            &self,
            log_numbers: &[u64],
            wal_dir: &str,
            stated: Option<&str>,
        ) -> Result<LogFolder> {
            let mut tree = Tree::default();
            for (id, &log_number) in (0..).zip(log_numbers) {
                let mut family = ColumnFamily::default();
                family.log_number = log_number;
                tree.column_families.insert(id, family);
            }
            let stated = stated.map(|path| self.path(path));
            LogFolder::find(
                &LocalStorage,
                &self.path("db"),
                Some(wal_dir),
                &tree,
                stated.as_deref(),
            )
        }

        /// The folder of the logs relative to the case's folder, and the reason.
        fn find(&self, wal_dir: &str) -> (String, LogSource) {
            let wal_dir = match wal_dir {
                "" => String::new(),
                name => self.path(name).display().to_string(),
            };
            let found = self.find_with(&[8, 12], &wal_dir, None).expect("readable");
            let path = found.path.strip_prefix(self.0.path()).expect("in it");
            (path.display().to_string(), found.source)
        }
    }

    fn why(source: &LogSource) -> &'static str {
        match source {
            LogSource::Missing { why, .. } => why,
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn the_stated_folder_comes_first_and_must_be_there() {
        let case = Case::new(&["db/000012.log", "logs/000012.log", "old/000008.log"]);
        let stated = |name| case.find_with(&[8, 12], "", Some(name));
        let found = stated("logs").expect("it is there");
        assert_eq!(found.path, case.path("logs"));
        assert_eq!(found.source, LogSource::Stated { has_log: true });
        assert!(found.may_be_replayed());
        let old = stated("old").expect("it is there");
        assert_eq!(old.source, LogSource::Stated { has_log: false });
        assert!(
            old.sentence()
                .is_some_and(|said| said.contains("which has none"))
        );
        let error = stated("none").expect_err("it is not there");
        assert_eq!(error.kind, ErrorKind::Storage);
        assert!(error.what.contains("none"), "{error}");
    }

    #[test]
    fn a_log_in_the_databases_folder_outweighs_wal_dir() {
        for own in ["db/000012.log", "db/000013.log"] {
            let case = Case::new(&[own, "logs/000012.log"]);
            let (path, source) = case.find("logs");
            assert_eq!((path.as_str(), source), ("db", LogSource::Own));
        }
        let older = Case::new(&["db/000011.log", "logs/000012.log"]);
        assert_eq!(older.find("logs").1, LogSource::Named);
    }

    #[test]
    fn a_backup_is_not_read_with_logs_of_the_original() {
        let case = Case::new(&["logs/000012.log", "private/1/OPTIONS-000009", "meta/1"]);
        let find = |dir| {
            let (wal_dir, mut tree) = (case.path("logs"), Tree::default());
            let mut family = ColumnFamily::default();
            family.log_number = 12;
            tree.column_families.insert(0, family);
            LogFolder::find(
                &LocalStorage,
                &case.path(dir),
                wal_dir.to_str(),
                &tree,
                None,
            )
        };
        assert_eq!(find("db").expect("readable").source, LogSource::Named);
        let of_backup = find("private/1").expect("readable");
        assert_eq!(
            of_backup,
            LogFolder::new(&case.path("private/1"), LogSource::Own)
        );
    }

    #[test]
    fn no_wal_dir_or_that_of_the_database_itself_needs_no_log() {
        let case = Case::new(&["db/db/000012.log"]);
        for wal_dir in ["", "db", "db/", "db/../db"] {
            let found = case.find(wal_dir);
            assert_eq!(found, ("db".to_owned(), LogSource::Own), "{wal_dir}");
        }
    }

    #[test]
    fn wal_dir_has_the_logs_if_it_has_the_newest_one_that_the_manifest_names() {
        let sound = Case::new(&["logs/000012.log", "logs/000014.log"]);
        assert_eq!(sound.find("logs"), ("logs".to_owned(), LogSource::Named));
        for (files, said) in [
            (&[][..], "does not exist"),
            (&["logs"], "does not exist"),
            (&["logs/CURRENT", "logs/000012.log"], "another database"),
            (&["logs/000011.log"], "has not the logs"),
            // The original database has newer logs.
            (&["logs/000013.log"], "has not the logs"),
            (&["logs/archive/000012.log"], "has not the logs"),
        ] {
            let (path, source) = Case::new(files).find("logs");
            assert_eq!(path, "db");
            assert!(why(&source).contains(said), "{files:?}: {source:?}");
        }
    }

    #[test]
    fn a_log_that_was_begun_when_the_database_was_opened_is_not_named() {
        // The OPTIONS file is number 9.
        let case = Case::new(&["logs/000008.log", "logs/000010.log", "later/000010.log"]);
        let find = |log_number: u64, name: &str| {
            let wal_dir = case.path(name).display().to_string();
            let found = case.find_with(&[log_number], &wal_dir, None);
            found.expect("readable").source == LogSource::Named
        };
        assert!(find(0, "logs") && find(7, "logs") && find(8, "logs") && find(10, "logs"));
        assert!(!find(7, "later") && !find(0, "later") && find(10, "later"));
    }

    #[test]
    fn a_log_of_another_family_or_that_is_tracked_belongs_to_the_database() {
        // The family with number 12 had no entries when the database was opened, which created log 13. Its OPTIONS file is
        // not there yet.
        for files in [
            &["logs/000008.log", "logs/000013.log"][..],
            &["logs/000012.log"],
        ] {
            assert_eq!(
                Case::new(files).find("logs").1,
                LogSource::Named,
                "{files:?}"
            );
        }
        let before = Case::new(&["logs/000008.log"]);
        assert!(why(&before.find("logs").1).contains("has not the logs"));
        let tracked = Case::new(&["logs/000010.log", "logs/000013.log"]);
        let mut tree = Tree::default();
        let family = tree.column_families.values_mut().next();
        family.expect("the default one").log_number = 11;
        let find = |tree: &Tree| {
            let wal_dir = tracked.path("logs").display().to_string();
            let found = LogFolder::find(
                &LocalStorage,
                &tracked.path("db"),
                Some(&wal_dir),
                tree,
                None,
            );
            found.expect("readable").source == LogSource::Named
        };
        assert!(!find(&tree));
        tree.synced_logs.insert(10, 11);
        assert!(find(&tree));
    }

    #[test]
    fn a_folder_of_the_same_last_name_moved_with_the_database() {
        for original in [&[][..], &["logs/000013.log"], &["logs/CURRENT"]] {
            let case = Case::new(&[original, &["db/logs/000012.log"]].concat());
            let (path, source) = case.find("logs");
            assert_eq!(path, "db/logs");
            assert!(matches!(source, LogSource::Moved { .. }), "{source:?}");
        }
        let other = Case::new(&["db/logs/000013.log"]);
        assert!(why(&other.find("logs").1).contains("does not exist"));
        let both = Case::new(&["logs/000012.log", "db/logs/000012.log"]);
        assert_eq!(both.find("logs").1, LogSource::Named);
    }

    #[test]
    fn a_relative_wal_dir_begins_at_the_working_directory() {
        let case = Case::new(&["db/src/000012.log"]);
        // The tests run in the folder of the crate, whose `src` has no log.
        let found = case.find_with(&[12], "src", None).expect("readable");
        assert_eq!(found.path, case.path("db/src"));
        let LogSource::Moved { wal_dir } = found.source else {
            panic!("{:?}", found.source);
        };
        assert_eq!(wal_dir, "src");
    }

    #[test]
    fn names_of_logs_are_numbers() {
        for (name, number) in [("000012.log", Some(12)), ("+12.log", None), (".log", None)] {
            assert_eq!(log_number(name), number, "{name}");
        }
    }
}
