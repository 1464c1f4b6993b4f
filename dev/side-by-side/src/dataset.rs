//! Databases of rows with columns. Each table is a column family, and `tables.sql` in the folder describes the columns
//! for `rockmill sql`.

mod row;
mod tpch;
mod tpch_queries;
mod ycsb;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, Error, IngestExternalFileOptions, Options, SstFileWriter,
};

use crate::machine::usual_threads;
use crate::progress;
use crate::workload::Compression;
use row::Row;
pub use tpch_queries::tpch_statements;

/// Name of the file that defines the tables.
pub const TABLES: &str = "tables.sql";

/// Rows of a table's file, before they are ingested.
const INGEST: &str = "ingest";
/// Bytes of keys and values in each file.
const FILE_BYTES: u64 = 64 << 20;

/// What a database contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Dataset {
    /// The eight tables of TPC-H.
    Tpch,
    /// One table of an integer and five texts of 32 bytes, with five million rows for each unit of the scale.
    Ycsb,
}

/// A table, which is a column family of the same name.
struct Table {
    name: &'static str,
    /// Columns with their SQL types.
    columns: &'static str,
    /// Their layouts in keys and in values.
    key: &'static str,
    value: &'static str,
    /// Approximate number of rows of a scale, and approximate bytes of each.
    rows: fn(f64) -> u64,
    row_bytes: u64,
    /// Makes the rows of one of several parts. The keys of a part lie above those of the part before.
    make: fn(&Part, Put<'_>) -> Result<(), Error>,
}

/// One of a number of parts of a table, from 1 on.
struct Part {
    scale: f64,
    number: i32,
    of: i32,
}

/// Takes a row.
type Put<'a> = &'a mut dyn FnMut(&Row) -> Result<(), Error>;

impl Dataset {
    fn tables(self) -> &'static [Table] {
        match self {
            Self::Tpch => &tpch::TABLES,
            Self::Ycsb => &ycsb::TABLES,
        }
    }

    /// Names of the tables.
    pub fn names(self) -> Vec<&'static str> {
        self.tables().iter().map(|table| table.name).collect()
    }

    /// The smallest scale, and the largest.
    fn scales(self) -> (f64, f64) {
        match self {
            // Some suppliers would have a part twice in a smaller one.
            Self::Tpch => (0.01, 100_000.0),
            Self::Ycsb => (0.0001, 100_000.0),
        }
    }
}

/// Makes a database in the folder `path`, which does not exist or is empty: all files in the last level, and `tables.sql`.
///
/// # Errors
/// Usage if the scale is out of range, or the folder has contents; Environment if the system refuses; Stopped if a signal
/// came. After an error the folder is removed.
pub fn load(
    path: &Path,
    dataset: Dataset,
    scale: f64,
    compression: Compression,
) -> Result<(), Failure> {
    let (smallest, largest) = dataset.scales();
    if !(smallest..=largest).contains(&scale) {
        let what = format!("--scale: {scale} is not between {smallest} and {largest}");
        return Err(Failure::Usage(what));
    }
    let refused = |e: std::io::Error| Failure::of_path(path, &e);
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(false) => {
            let path = path.display();
            let what = format!("{path} has contents; remove it or name a new folder with --db");
            return Err(Failure::Usage(what));
        }
        Err(error) => return Err(refused(error)),
    }
    fs::create_dir_all(path).map_err(refused)?;
    let written = write(path, dataset, scale, compression);
    let written = written.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())));
    let done = written.and_then(|()| {
        signals::check(&format!("{} is removed", path.display()))?;
        let tables = dataset.tables().iter().map(definition).collect::<String>();
        fs::write(path.join(TABLES), tables).map_err(refused)
    });
    if done.is_err() {
        // A partial database would look like a complete one.
        let _ = fs::remove_dir_all(path);
    }
    done
}

/// The statement that defines a table for `rockmill sql`.
fn definition(table: &Table) -> String {
    let Table {
        name,
        columns,
        key,
        value,
        ..
    } = table;
    format!(
        "create external table {name} (\n  {columns}\n) stored as rocksdb location '.' options (\n  'family' '{name}',\n  \
         'key' '{key}',\n  'value' '{value}'\n);\n"
    )
}

fn write(path: &Path, dataset: Dataset, scale: f64, compression: Compression) -> Result<(), Error> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(compression.of_rocksdb());
    let tables = dataset.tables();
    let families = tables.iter();
    let families = families.map(|table| ColumnFamilyDescriptor::new(table.name, options.clone()));
    let db = DB::open_cf_descriptors(&options, path, families)?;
    let mut parts = Vec::new();
    for (table, number) in tables.iter().zip(0..) {
        let bytes = (table.rows)(scale) * table.row_bytes;
        let of = bytes.div_ceil(FILE_BYTES).max(1) as i32;
        parts.extend(
            (1..=of)
                .map(|number| Part { scale, number, of })
                .map(|part| (number, part)),
        );
    }
    let progress = progress::bar(tables.iter().map(|table| (table.rows)(scale)).sum());
    let file = |table: usize, part: &Part| {
        path.join(format!("{INGEST}-{}-{}", tables[table].name, part.number))
    };
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..usual_threads() {
            scope.spawn(|| {
                while let Some((table, part)) = parts.get(next.fetch_add(1, Ordering::Relaxed))
                    && !signals::token().is_cancelled()
                {
                    let file = file(*table, part);
                    if let Err(error) =
                        write_file(&tables[*table], part, &options, &file, &progress)
                    {
                        next.store(parts.len(), Ordering::Relaxed);
                        *failed.lock().expect("nothing panics with it") = Some(error);
                        return;
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().expect("nothing panics with it") {
        return Err(error);
    }
    if signals::token().is_cancelled() {
        return Ok(());
    }
    for (number, table) in tables.iter().enumerate() {
        let files = parts.iter().filter(|(table, _)| *table == number);
        let files = files.map(|(table, part)| file(*table, part)).collect();
        let mut ingest = IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        let family = db
            .cf_handle(table.name)
            .expect("it was opened with the database");
        db.ingest_external_file_cf_opts(&family, &ingest, files)?;
    }
    progress.finish_and_clear();
    Ok(())
}

fn write_file(
    table: &Table,
    part: &Part,
    options: &Options,
    file: &Path,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let mut writer = SstFileWriter::create(options);
    writer.open(file)?;
    let mut put = |row: &Row| {
        progress.inc(1);
        writer.put(&row.key, &row.value)
    };
    (table.make)(part, &mut put)?;
    writer.finish()
}
