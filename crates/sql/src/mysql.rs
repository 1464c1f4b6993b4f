//! Databases of MyRocks: maps tables to indexes.
//!
//! The dictionary is the column family `__system__`. Its keys begin with the number of a kind of entry. Integers are
//! big-endian.

mod file_names;
mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::catalog::TableProvider;
use datafusion::common::{TableReference, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{SessionContext, col, lit};
use datafusion::scalar::ScalarValue;
use rockmill_layout::{Layout, MysqlTable};
use rockmill_scan::Snapshot;

pub use refused::RefusedTables;

use crate::scan::external_in;
use crate::session::keep;
use crate::table::{Scans, blocking};

const DICTIONARY: &str = "__system__";

/// Kinds of entries. A table's key continues with `database.table`, and an index's with the number of its column family
/// and its own. Other kinds have larger numbers and are not read: row numbers are merge operands, and only the server
/// has their operator.
const TABLE: u32 = 1;
const INDEX: u32 = 2;
const OTHERS: u32 = 3;

/// Kinds of indexes.
const PRIMARY: u8 = 1;
const HIDDEN_PRIMARY: u8 = 3;

/// The supported versions of entries and of rows: those that MariaDB 10.11 writes.
const TABLE_VERSION: u16 = 1;
const INDEX_VERSION: u16 = 6;
const ROW_VERSION: u16 = 13;

/// Entries of the dictionary: keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The index that holds the rows of a table.
struct RowIndex {
    family: u32,
    number: u32,
    /// Whether its keys are hidden numbers.
    is_hidden: bool,
}

impl Scans {
    /// Adds the tables of MyRocks that the text's CREATE TABLE statements describe, as SHOW CREATE TABLE prints them.
    /// Errors name the file of the text, `file`.
    ///
    /// A table that is missing in the database or not supported does not affect the others: statements that name it get
    /// an error with the reason. The same holds for a column that is not supported.
    ///
    /// Returns a warning, as a sentence, if the log has prepared transactions. A server with a binary log may have
    /// acknowledged them, but their rows are missing.
    ///
    /// # Errors
    /// One sentence if the text has no CREATE TABLE statement, or if the database is not one of MyRocks; errors of
    /// reading the dictionary.
    pub async fn register_mysql(
        &self,
        session: &SessionContext,
        text: &str,
        file: &str,
    ) -> Result<Option<String>> {
        let tables = MysqlTable::all_of(text);
        let tables = tables.map_err(|e| DataFusionError::Plan(format!("{file}: {e}")))?;
        if tables.is_empty() {
            return plan_err!("{file} has no CREATE TABLE statement");
        }
        let (this, engine) = (self.clone(), Arc::clone(self.engine()));
        let snapshot = move || {
            let database = this.database();
            let snapshot = database.snapshot_of(&engine, &[DICTIONARY]);
            snapshot.map_err(|e| external_in(database.path(), e))
        };
        let snapshot = blocking(snapshot).await?;
        let entries = self.dictionary(session, &snapshot).await?;
        let mut read: BTreeMap<String, std::result::Result<_, String>> = BTreeMap::new();
        for table in tables {
            let Some(name) = table.name.last().cloned() else {
                return plan_err!("{file} has a table without a name");
            };
            let layout = match read.contains_key(&name) {
                true => Err("it is described twice".to_owned()),
                false => mysql_layout(&table, &entries, &snapshot),
            };
            read.insert(name, layout);
        }
        let mut refused = BTreeMap::new();
        for (name, layout) in read {
            let place = format!("table {name} of {file}");
            match layout {
                Ok((family, layout)) => {
                    let provider = Arc::new(self.table_of(&family, layout.named(place)));
                    let name = TableReference::bare(name);
                    session.register_table(name.clone(), provider)?;
                    keep(session, name).await?;
                }
                Err(why) => {
                    refused.insert(name, format!("{place}: {why}"));
                }
            }
        }
        refused::register(session, refused)?;
        Ok(needs_merge(snapshot.prepared()))
    }

    /// The entries of tables and indexes.
    async fn dictionary(&self, session: &SessionContext, snapshot: &Snapshot) -> Result<Entries> {
        if !snapshot.families().any(|family| family == DICTIONARY) {
            return plan_err!(
                "the directory is not a database of MyRocks: it has no column family {DICTIONARY}"
            );
        }
        let provider: Arc<dyn TableProvider> = self.table(DICTIONARY);
        let key = |kind: u32| lit(ScalarValue::Binary(Some(kind.to_be_bytes().to_vec())));
        let are_read = col("key").gt_eq(key(TABLE)).and(col("key").lt(key(OTHERS)));
        let batches = session
            .read_table(provider)?
            .filter(are_read)?
            .collect()
            .await?;
        let rows = |batch: RecordBatch| {
            let (keys, values) = (batch.column(0), batch.column(1));
            let (keys, values) = (keys.as_binary::<i32>(), values.as_binary::<i32>());
            let rows = keys.iter().zip(values).map(|(key, value)| {
                let bytes = |bytes: Option<&[u8]>| bytes.unwrap_or_default().to_vec();
                (bytes(key), bytes(value))
            });
            rows.collect::<Vec<_>>()
        };
        Ok(batches.into_iter().flat_map(rows).collect())
    }
}

/// The warning about transactions that are prepared and not committed in the log; `None` if there are none.
fn needs_merge(transactions: usize) -> Option<String> {
    (transactions > 0).then(|| {
        format!(
            "some transactions are prepared in the log and not committed there ({transactions}): a server with a binary \
             log may have acknowledged them, and their rows are missing here until it writes on, stops or starts again"
        )
    })
}

/// The column family of a table, and its layout.
fn mysql_layout(
    table: &MysqlTable,
    entries: &Entries,
    snapshot: &Snapshot,
) -> std::result::Result<(String, Layout), String> {
    let index = row_index(&stored_table(table, entries)?, entries)?;
    let family = snapshot.family_of_id(index.family);
    let family = family.ok_or("its column family does not exist")?;
    let layout = Layout::mysql(table, index.number, index.is_hidden)?;
    let orders_by_bytes = snapshot.orders_by_bytes(family);
    if !orders_by_bytes.map_err(|e| e.to_string())? {
        return Err(format!(
            "it lies in the column family {family}, whose keys are not in the order of their bytes, which is not supported"
        ));
    }
    Ok((family.to_owned(), layout))
}

/// The value of a table's entry.
fn stored_table(table: &MysqlTable, entries: &Entries) -> std::result::Result<Vec<u8>, String> {
    let parts: Vec<_> = table
        .name
        .iter()
        .map(|part| file_names::encode(part))
        .collect();
    let Some((name, database)) = parts.split_last() else {
        return Err("it has no name".to_owned());
    };
    let of_tables = entries.iter().filter_map(|(key, value)| {
        let full = key.strip_prefix(&TABLE.to_be_bytes())?;
        let (database, name) = std::str::from_utf8(full).ok()?.split_once('.')?;
        Some((database, name, value))
    });
    let is_database = |found: &str| database.first().is_none_or(|wanted| wanted == found);
    let of_database: Vec<_> = of_tables.filter(|(found, ..)| is_database(found)).collect();
    let found: Vec<_> = of_database.iter().filter(|(_, of, _)| of == name).collect();
    match found[..] {
        [(_, _, value)] => Ok(value.to_vec()),
        [(first, ..), (second, ..), ..] => {
            let [first, second, name] = [first, second, name.as_str()].map(file_names::decode);
            Err(format!(
                "the databases {first} and {second} both have it: write CREATE TABLE {first}.{name}"
            ))
        }
        [] => {
            let partition = format!("{name}#");
            let is_partition = |(_, of, _): &(&str, &str, _)| {
                of.to_lowercase().starts_with(&partition.to_lowercase())
            };
            match of_database.iter().any(is_partition) {
                true => Err("it has partitions, which is not supported".to_owned()),
                false => Err("the directory has no such table".to_owned()),
            }
        }
    }
}

/// The index that is the primary key or replaces it.
fn row_index(table: &[u8], entries: &Entries) -> std::result::Result<RowIndex, String> {
    let damaged = || "its entry in the dictionary is not understood".to_owned();
    let (version, indexes) = table.split_first_chunk().ok_or_else(damaged)?;
    if u16::from_be_bytes(*version) != TABLE_VERSION {
        return Err(damaged());
    }
    for index in indexes.chunks(8) {
        let key = [&INDEX.to_be_bytes(), index].concat();
        let entry = entries.iter().find(|(of, _)| *of == key);
        let (_, entry) = entry.ok_or_else(damaged)?;
        let entry = IndexEntry::read(entry).ok_or_else(damaged)?;
        if !matches!(entry.kind, PRIMARY | HIDDEN_PRIMARY) {
            continue;
        }
        if entry.row_version != ROW_VERSION {
            return Err(format!(
                "its rows have the format {}, and only {ROW_VERSION} is supported",
                entry.row_version
            ));
        }
        if entry.expires {
            return Err("its rows have a time to live, which is not supported".to_owned());
        }
        let (family, number) = index.split_first_chunk().ok_or_else(damaged)?;
        let number = number.try_into().map_err(|_| damaged())?;
        return Ok(RowIndex {
            family: u32::from_be_bytes(*family),
            number: u32::from_be_bytes(number),
            is_hidden: entry.kind == HIDDEN_PRIMARY,
        });
    }
    Err(damaged())
}

/// The dictionary's entry of an index.
struct IndexEntry {
    kind: u8,
    row_version: u16,
    expires: bool,
}

impl IndexEntry {
    /// Reads a version, the kind, the version of the rows, flags, and the seconds that rows live.
    fn read(entry: &[u8]) -> Option<Self> {
        const FLAGS_BYTES: usize = 4;
        let (version, rest) = entry.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let (row_version, rest) = rest.split_first_chunk()?;
        let seconds = rest.get(FLAGS_BYTES..)?.first_chunk()?;
        (u16::from_be_bytes(*version) == INDEX_VERSION).then(|| Self {
            kind: *kind,
            row_version: u16::from_be_bytes(*row_version),
            expires: u64::from_be_bytes(*seconds) != 0,
        })
    }
}
