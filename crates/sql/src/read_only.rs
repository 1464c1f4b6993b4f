//! RocksDB's iterators over a directory, which RocksDB opens read-only.

mod options;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rockmill_core::{DeclineReason, Error, ErrorKind, Result};
use rockmill_format::names;
use rockmill_scan::{IteratorRead, Iterators};
use rust_rocksdb::{DB, Env, ReadOptions};
use tempfile::TempDir;

/// Rows between two checks for cancellation.
const ROWS_PER_CHECK: usize = 4096;

/// Opens a directory read-only, with the options of its OPTIONS file, when the first rows are read.
#[derive(Default)]
pub struct ReadOnly(Mutex<Option<Opened>>);

#[derive(Clone)]
struct Opened {
    db: Arc<DB>,
    /// Column families that RocksDB cannot read, by the text of their names, and why.
    unread: Arc<BTreeMap<String, String>>,
    /// RocksDB writes its info log there, and nothing else anywhere.
    _log: Arc<TempDir>,
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}

impl ReadOnly {
    /// The database as of the sequence number of a read.
    fn at(&self, what: &IteratorRead<'_>) -> Result<Opened> {
        let (path, sequence) = (what.path, what.sequence);
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // It sees all that was written before it was opened, and nothing later.
        let is_there = |opened: &Opened| opened.db.latest_sequence_number() == sequence;
        let is_read = |opened: &Opened| !opened.unread.contains_key(what.family);
        let known = opened.as_ref();
        if let Some(opened) = known.filter(|opened| is_there(opened) && is_read(opened)) {
            return Ok(opened.clone());
        }
        let fresh = open(path)?;
        if let Some(why) = fresh.unread.get(what.family) {
            let what = format!(
                "RocksDB cannot read column family \"{}\", because {why}: query it from the application, through a \
                 handle of the open database",
                what.family
            );
            let error = Error::declined(DeclineReason::Comparator, what);
            return Err(error.in_file(&path.display().to_string()));
        }
        if !is_there(&fresh) {
            let what = "another process wrote to the database after the statement had begun, and some of its rows can \
                        be read by RocksDB alone: run the statement again";
            return Err(Error::new(ErrorKind::Storage, what).in_file(&path.display().to_string()));
        }
        *opened = Some(fresh.clone());
        Ok(fresh)
    }
}

fn open(path: &Path) -> Result<Opened> {
    let name = path.display().to_string();
    let refused = |doing: &str, error: &dyn fmt::Display| {
        let what = format!("RocksDB cannot {doing}: {error}");
        Error::declined(DeclineReason::OptionsFile, what).in_file(&name)
    };
    let log = TempDir::new()
        .map_err(|e| refused("write its log to the folder for temporary files", &e))?;
    let env = Env::new().map_err(|e| refused("start", &e))?;
    let loaded = options::load(path, log.path(), env);
    let mut loaded = loaded.map_err(|e| refused("read the OPTIONS file", &e))?;
    loaded.options.set_db_log_dir(log.path());
    let db = DB::open_cf_descriptors_read_only(&loaded.options, path, loaded.families, false);
    let db = db.map_err(|e| refused("open the database read-only", &e))?;
    Ok(Opened {
        db: Arc::new(db),
        unread: Arc::new(loaded.unread),
        _log: Arc::new(log),
    })
}

impl Iterators for ReadOnly {
    fn read(
        &self,
        what: &IteratorRead<'_>,
        row: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Opened { db, _log, .. } = self.at(what)?;
        let name = what.path.display().to_string();
        let family = String::from_utf8(names::unescape(what.family)).ok();
        let Some(family) = family.and_then(|family| db.cf_handle(&family)) else {
            let gone = format!("there is no column family {}", what.family);
            return Err(Error::declined(DeclineReason::Manifest, gone).in_file(&name));
        };
        let mut options = ReadOptions::default();
        if let Some(end) = &what.range.end {
            options.set_iterate_upper_bound(end.clone());
        }
        options.fill_cache(false);
        let mut rows = db.raw_iterator_cf_opt(&family, options);
        match &what.range.begin {
            Some(begin) => rows.seek(begin),
            None => rows.seek_to_first(),
        }
        let mut passed = 0;
        while let Some((key, value)) = rows.item() {
            if passed % ROWS_PER_CHECK == 0 {
                what.cancel.check()?;
            }
            passed += 1;
            row(key, value)?;
            rows.next();
        }
        rows.status().map_err(|error| {
            let text = error.to_string();
            let error = match text.contains("merge_operator") || text.contains("merge operator") {
                // Only the application has it.
                true => Error::declined(
                    DeclineReason::MergeOperands,
                    "rows have merge operands, and their merge operator is none that RocksDB registers by its name: \
                     query them from the application, through a handle of the open database",
                ),
                false => Error::new(ErrorKind::Storage, format!("RocksDB cannot read rows: {text}")),
            };
            error.in_file(&name)
        })
    }
}
