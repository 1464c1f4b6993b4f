//! Reads a database's state from its newest OPTIONS file and its MANIFEST. Writes nothing; the database may be open.

use std::path::Path;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, JobInfo, Result};
use rockmill_format::manifest::ColumnFamily;
use rockmill_format::options_file::{Options, OptionsFile, text_from_bytes};
use rockmill_format::wire::CompactionServiceInput;

use crate::manual::Shape;
use crate::tree::TreeFollower;
use rockmill_storage::{Storage, base_name, read_from, shared_files};

/// Largest OPTIONS file that is read.
const MAX_OPTIONS_BYTES: u64 = 64 << 20;

/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;

/// Options and tree of a database, from its files.
#[derive(Debug)]
pub struct ClosedDatabase {
    /// Number of the OPTIONS file.
    pub options_number: u64,
    /// Its text.
    pub options_text: String,
    /// The parsed text.
    pub options: OptionsFile,
    /// Number of a newer OPTIONS file that is cut.
    pub cut_options: Option<u64>,
    /// Follower that has read the MANIFEST.
    pub follower: TreeFollower,
}

impl ClosedDatabase {
    /// Reads the files in `dir`.
    ///
    /// # Errors
    /// Declined if one of them cannot be read, or Storage if the folder cannot.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let latest = LatestOptions::read(storage, dir)?.ok_or_else(|| {
            Error::declined(DeclineReason::OptionsFile, "there is none").in_file(&base_name(dir))
        })?;
        let mut follower = TreeFollower::default();
        follower.refresh(storage, dir, (0, 0), &CancelToken::new())?;
        Ok(Self {
            options_number: latest.number,
            options_text: latest.text,
            options: latest.options,
            cut_options: latest.cut,
            follower,
        })
    }

    /// Returns the options that decide how RocksDB splits a manual compaction of a column family.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn shape(&self, cf_name: &[u8]) -> Result<Shape> {
        let silent = Options::default();
        let options = self.options.cf(cf_name).map_or(&silent, |cf| &cf.options);
        Shape::read(options).map_err(|error| in_options(self.options_number, error))
    }

    /// Returns the deepest level of a column family.
    ///
    /// # Errors
    /// Declined if the option is malformed.
    pub fn last_level(&self, cf_name: &[u8]) -> Result<i32> {
        let last = self.shape(cf_name)?.last_level();
        Ok(i32::try_from(last).unwrap_or(i32::MAX))
    }

    /// Returns the column family of that name and its id.
    ///
    /// # Errors
    /// Declined if there is none.
    pub fn family(&self, cf_name: &[u8]) -> Result<(u32, &ColumnFamily)> {
        let none = || Error::declined(DeclineReason::Manifest, "there is no such column family");
        self.follower.tree().by_name(cf_name).ok_or_else(none)
    }

    /// Returns the request that RocksDB would make to compact all files of a column family to the last level in one
    /// job. The column family may have no files.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn full_request(
        &self,
        dir: &Path,
        cf_name: &[u8],
    ) -> Result<(JobInfo, CompactionServiceInput)> {
        let (_, family) = self.family(cf_name)?;
        let mut files = Vec::new();
        for (&level, of_level) in &family.levels {
            let numbers = of_level.keys().map(|&number| (level, number));
            // RocksDB names the newest file of level 0 first.
            match level {
                0 => files.extend(numbers.rev()),
                _ => files.extend(numbers),
            }
        }
        self.request(dir, cf_name, &files, self.last_level(cf_name)?)
    }

    /// Returns the request that RocksDB would make for a manual compaction of the files, given by level and number, to
    /// `output_level` in one job.
    ///
    /// # Errors
    /// Declined if there is no such column family.
    pub fn request(
        &self,
        dir: &Path,
        cf_name: &[u8],
        files: &[(u32, u64)],
        output_level: i32,
    ) -> Result<(JobInfo, CompactionServiceInput)> {
        let (cf_id, family) = self.family(cf_name)?;
        let all = family.levels.values().flat_map(|files| files.keys());
        let deepest = family.levels.iter().filter(|(_, files)| !files.is_empty());
        let deepest = deepest.map(|(&level, _)| i64::from(level)).max();
        let info = JobInfo {
            db_name: dir.display().to_string(),
            db_session_id: String::new(),
            cf_id,
            job_id: 0,
            reason: MANUAL,
            is_full_compaction: all.count() == files.len(),
            is_manual_compaction: true,
            is_bottommost_level: deepest.is_none_or(|level| level <= i64::from(output_level)),
            base_input_level: files.first().map_or(0, |&(level, _)| level as i32),
            output_level,
            is_in_bottom_pool: false,
            rocksdb_version: None,
        };
        let input = CompactionServiceInput {
            cf_name: cf_name.to_vec(),
            snapshots: Vec::new(),
            input_files: files
                .iter()
                .map(|(_, number)| format!("{number:06}.sst"))
                .collect(),
            output_level,
            db_id: self.follower.tree().db_id.clone(),
            begin: None,
            end: None,
            options_file_number: self.options_number,
            min_manifest_file_number: 0,
            min_manifest_file_size: 0,
            options: None,
        };
        Ok((info, input))
    }
}

/// Refuses jobs over the folder `private/N` of a backup that shares files with other backups.
///
/// # Errors
/// Declined if `dir` is such a folder.
pub fn refuse_backup(dir: &Path) -> Result<()> {
    if shared_files(dir).is_empty() {
        return Ok(());
    }
    let what = "it is a backup of a BackupEngine, whose tables are shared with other backups: restore it, and name the \
                folder of the restored database";
    Err(Error::declined(DeclineReason::InputMissing, what).in_file(&dir.display().to_string()))
}

/// Reads the text of an OPTIONS file.
///
/// # Errors
/// Declined if it cannot be read.
pub fn read_options(storage: &dyn Storage, dir: &Path, number: u64) -> Result<String> {
    let name = options_name(number);
    let kind = ErrorKind::Declined(DeclineReason::OptionsFile);
    let bytes = read_from(storage, &dir.join(&name), 0, MAX_OPTIONS_BYTES);
    let bytes = bytes.map_err(|e| Error { kind, ..e })?;
    Ok(text_from_bytes(bytes))
}

/// Parses the number in the name of an OPTIONS file, `OPTIONS-000012`; `None` for other files.
pub fn options_number(file_name: &str) -> Option<u64> {
    file_name.strip_prefix("OPTIONS-")?.parse().ok()
}

/// The newest OPTIONS file of a database that is not cut.
#[derive(Debug)]
pub struct LatestOptions {
    /// Its number.
    pub number: u64,
    /// Its text.
    pub text: String,
    /// The parsed text.
    pub options: OptionsFile,
    /// Number of the newest OPTIONS file of all, if that is cut.
    pub cut: Option<u64>,
}

impl LatestOptions {
    /// Reads it; `None` if the database has no OPTIONS file.
    ///
    /// A file that is empty or ends too early was cut when the system crashed or when it was copied. RocksDB has kept the
    /// file before it, which then counts.
    ///
    /// # Errors
    /// Storage if the folder cannot be listed; Declined if the file cannot be read or is malformed, or all are cut.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<Self>> {
        let names = storage.list(dir);
        let names = names.map_err(|e| Error::storage(&base_name(dir), "list it", &e))?;
        let numbers = names.iter().filter_map(|name| options_number(name));
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        let newest = numbers.last().copied();
        let mut trouble = None;
        while let Some(number) = numbers.pop() {
            let text = read_options(storage, dir, number)?;
            match OptionsFile::parse(&text) {
                Ok(options) => {
                    return Ok(Some(Self {
                        number,
                        text,
                        options,
                        cut: newest.filter(|&newest| newest != number),
                    }));
                }
                Err(error) => {
                    let error = in_options(number, error);
                    if !is_cut(&text) {
                        return Err(error);
                    }
                    trouble.get_or_insert(error);
                }
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    /// The name of a column family's comparator, see [`comparator`].
    pub fn comparator<'a>(&'a self, family: &'a ColumnFamily) -> &'a [u8] {
        let said = self.options.cf(&family.name);
        let said = said.and_then(|cf| cf.options.str("comparator"));
        comparator(family, said.map(str::as_bytes))
    }
}

/// The name of a column family's comparator. If the MANIFEST has none, as with databases that old versions opened once,
/// RocksDB uses the name in OPTIONS, `said`.
pub fn comparator<'a>(family: &'a ColumnFamily, said: Option<&'a [u8]>) -> &'a [u8] {
    match family.comparator.is_empty() {
        true => said.unwrap_or_default(),
        false => &family.comparator,
    }
}

/// Whether a text that is not an OPTIONS file is the start of one, or zeros. RocksDB ends each line with a newline.
fn is_cut(text: &str) -> bool {
    text.is_empty() || !text.ends_with('\n') || !text.contains("[CFOptions ")
}

/// Makes an error about an OPTIONS file, with the file's name.
pub fn in_options(number: u64, error: rockmill_format::Error) -> Error {
    Error {
        kind: ErrorKind::Declined(DeclineReason::OptionsFile),
        ..Error::format(&options_name(number), error)
    }
}

/// Name of an OPTIONS file.
pub fn options_name(number: u64) -> String {
    format!("OPTIONS-{number:06}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rockmill_storage::LocalStorage;

    use super::*;

    const WHOLE: &str = "[Version]\n  rocksdb_version=9.8.4\n[DBOptions]\n  max_open_files=-1\n\
        [CFOptions \"default\"]\n  compression=kLZ4Compression\n";

    fn read(files: &[(&str, &str)]) -> Result<Option<LatestOptions>> {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("written");
        }
        LatestOptions::read(&LocalStorage, dir.path())
    }

    #[test]
    fn a_cut_file_gives_way_to_the_one_before_it() {
        let older = ("OPTIONS-000007", WHOLE);
        let zeros = "\0".repeat(4096);
        let cuts = (0..WHOLE.len()).map(|at| &WHOLE[..at]);
        let mut are_cut = 0;
        for text in cuts.chain([zeros.as_str()]) {
            let newer = ("OPTIONS-000012", text);
            let latest = read(&[older, newer]).expect("the older one is whole");
            let latest = latest.expect("there are two");
            match OptionsFile::parse(text) {
                Ok(_) => assert_eq!((latest.number, latest.cut), (12, None), "{text}"),
                Err(_) => {
                    are_cut += 1;
                    assert_eq!((latest.number, latest.cut), (7, Some(12)), "{text}");
                    let alone = read(&[newer]).expect_err("there is no other");
                    assert_eq!(alone.file.as_deref(), Some("OPTIONS-000012"));
                }
            }
        }
        assert!(are_cut > WHOLE.len() / 2, "{are_cut}");
        assert!(read(&[]).expect("a folder").is_none());
    }

    #[test]
    fn a_malformed_file_is_an_error_that_names_it() {
        let bad = WHOLE.replace("max_open_files=", "max_open_files");
        let error = read(&[("OPTIONS-000007", WHOLE), ("OPTIONS-000012", &bad)]);
        let error = error.expect_err("the newer one is malformed");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::OptionsFile));
        assert_eq!(error.file.as_deref(), Some("OPTIONS-000012"));
    }
}
