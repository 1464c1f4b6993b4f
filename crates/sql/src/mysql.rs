//! Databases of MyRocks: which index holds which table.
//!
//! The dictionary is the column family `__system__`. Its keys begin with the number of a kind of entry. Integers are
//! big-endian.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::catalog::TableProvider;
use datafusion::common::{TableReference, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{CreateTable, Statement};
use datafusion::sql::sqlparser::dialect::MySqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use rockmill_layout::Layout;
use rockmill_scan::View;

use crate::scan::external;
use crate::table::{Scans, blocking};

const DICTIONARY: &str = "__system__";

/// Kinds of entries: of a table, whose key goes on with `database.table`; and of an index, whose key goes on with the
/// number of its column family and its own.
const TABLE: u32 = 1;
const INDEX: u32 = 2;

/// Kinds of indexes.
const PRIMARY: u8 = 1;
const HIDDEN_PRIMARY: u8 = 3;

/// The versions of entries and of rows that are understood: those that MariaDB 10.11 writes.
const TABLE_VERSION: u16 = 1;
const INDEX_VERSION: u16 = 6;
const ROW_VERSION: u16 = 13;

/// Entries of the dictionary: keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The index that holds the rows of a table.
struct RowIndex {
    family: u32,
    number: u32,
}

impl Scans {
    /// Adds the tables of MyRocks that the text's CREATE TABLE statements describe, as SHOW CREATE TABLE prints them. Errors
    /// name `file`, which has the text.
    ///
    /// # Errors
    /// One sentence if the text has none, or if the database has no such table or stores it in a way that is not
    /// supported; and those of reading the dictionary.
    pub async fn register_mysql(
        &self,
        session: &SessionContext,
        text: &str,
        file: &str,
    ) -> Result<()> {
        let statements = Parser::parse_sql(&MySqlDialect {}, text)
            .map_err(|e| DataFusionError::Plan(format!("{file}: {e}")))?;
        let tables: Vec<_> = statements
            .into_iter()
            .filter_map(|statement| match statement {
                Statement::CreateTable(table) => Some(table),
                _ => None,
            })
            .collect();
        if tables.is_empty() {
            return plan_err!("{file} has no CREATE TABLE statement");
        }
        let (this, engine) = (self.clone(), Arc::clone(self.engine()));
        let view = blocking(move || this.database().view(&engine).map_err(external)).await?;
        let entries = self.dictionary(session, &view).await?;
        for table in tables {
            let name = named(&table)?;
            let place = format!("table {name} of {file}");
            let layout = self.mysql_layout(&table, &entries, &view);
            let (family, layout) =
                layout.map_err(|e| DataFusionError::Plan(format!("{place}: {e}")))?;
            let provider = self.table_of(&family, layout.named(place));
            session.register_table(TableReference::bare(name), Arc::new(provider))?;
        }
        Ok(())
    }

    async fn dictionary(&self, session: &SessionContext, view: &View) -> Result<Entries> {
        if !view.families().any(|family| family == DICTIONARY) {
            return plan_err!(
                "the directory is no database of MyRocks: it has no column family {DICTIONARY}"
            );
        }
        let provider: Arc<dyn TableProvider> = self.table(DICTIONARY);
        let batches = session.read_table(provider)?.collect().await?;
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

    /// The column family of a table, and its layout.
    fn mysql_layout(
        &self,
        table: &CreateTable,
        entries: &Entries,
        view: &View,
    ) -> std::result::Result<(String, Layout), String> {
        let index = row_index(&stored_table(table, entries)?, entries)?;
        let family = view.family_of_id(index.family);
        let family = family.ok_or("its column family does not exist")?;
        let layout = Layout::mysql(table, index.number)?;
        let opened = view.family(family).map_err(|e| e.to_string())?;
        if !opened.orders_by_bytes() {
            return Err(format!(
                "it lies in the column family {family}, whose keys are not in the order of their bytes, which is not \
                 supported"
            ));
        }
        Ok((family.to_owned(), layout))
    }
}

fn named(table: &CreateTable) -> Result<String> {
    let last = table.name.0.last().and_then(|part| part.as_ident());
    match last {
        Some(name) => Ok(name.value.clone()),
        None => plan_err!("{} is no name of a table", table.name),
    }
}

/// The value of a table's entry.
fn stored_table(table: &CreateTable, entries: &Entries) -> std::result::Result<Vec<u8>, String> {
    let parts = table.name.0.iter().filter_map(|part| part.as_ident());
    let parts: Vec<_> = parts.map(|part| file_name(&part.value)).collect();
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
        [(first, ..), (second, ..), ..] => Err(format!(
            "the databases {first} and {second} both have it: write CREATE TABLE {first}.{name}"
        )),
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

/// A name as MySQL writes it in names of files, and in the dictionary.
fn file_name(name: &str) -> String {
    let encode = |character: char| match character {
        '_' | '0'..='9' | 'a'..='z' | 'A'..='Z' => character.to_string(),
        other => format!("@{:04x}", u32::from(other)),
    };
    name.chars().map(encode).collect()
}

/// The index that is or stands for the primary key.
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
                "its rows have the format {}, and {ROW_VERSION} alone is supported",
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
        });
    }
    Err(damaged())
}

/// What the dictionary says of an index.
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
