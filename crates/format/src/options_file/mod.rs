//! The `OPTIONS-NNNNNN` file: the options with which a database was opened.
//!
//! ```text
//! [Version]
//!   rocksdb_version=11.12.0
//!   options_file_version=1.1
//! [DBOptions]
//!   max_open_files=-1
//! [CFOptions "default"]
//!   compression=kLZ4Compression
//! [TableOptions/BlockBasedTable "default"]
//!   block_size=4096
//! ```
//!
//! One statement per line, `#` starts a comment, and a backslash escapes `\ # : \r \n`. Source:
//! `options/options_parser.cc` (`RocksDBOptionsParser`).

mod options;
pub(crate) mod text;

pub use options::Options;
pub use text::from_bytes as text_from_bytes;

use crate::error::{Error, Result};
use text::TextSlice;

/// Name of the column family that every database has (`kDefaultColumnFamilyName`).
const DEFAULT_COLUMN_FAMILY: &[u8] = b"default";

/// Start of the titles of table sections; the table factory's name follows.
const TABLE_OPTIONS: &str = "TableOptions/";

/// A parsed OPTIONS file, with option values as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionsFile {
    /// Version of the RocksDB that wrote the file: major, minor, patch; zeros if the file lacks it.
    pub rocksdb_version: [u32; 3],
    /// Version of the file's format: major, minor; zeros if the file lacks it.
    pub options_file_version: [u32; 2],
    /// The section `[DBOptions]`.
    pub db: Options,
    /// The column families in the order of the file; the first is `default`.
    pub column_families: Vec<ColumnFamilyOptions>,
}

/// Options of one column family in an OPTIONS file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnFamilyOptions {
    /// Name without escapes.
    pub name: Vec<u8>,
    /// The section `[CFOptions "name"]`.
    pub options: Options,
    /// Name of the table factory, such as `BlockBasedTable`; empty if there is no such section.
    pub table_factory: String,
    /// The section `[TableOptions/<factory> "name"]`.
    pub table_options: Options,
}

/// Section to which the current statements belong.
#[derive(Debug, Clone, Copy, Default)]
enum Section {
    #[default]
    None,
    Version,
    Db,
    ColumnFamily(usize),
    Table(usize),
}

impl OptionsFile {
    /// Parses the text of an OPTIONS file.
    ///
    /// # Errors
    /// Corruption if a line is neither section nor statement, if sections are missing, doubled or out of order, or if a
    /// version is malformed. Option values are not checked.
    pub fn parse(text: &str) -> Result<Self> {
        Parser::default().read(text)
    }

    /// The same for a caller that needs only one column family: the others keep their names, but not their options. In
    /// a database of many column families these are most of the text, and each job reads it.
    ///
    /// # Errors
    /// Those of [`OptionsFile::parse`].
    pub fn parse_for(text: &str, family: &[u8]) -> Result<Self> {
        let parser = Parser {
            only: Some(family),
            ..Parser::default()
        };
        parser.read(text)
    }

    /// The column family of that name.
    pub fn cf(&self, name: &[u8]) -> Option<&ColumnFamilyOptions> {
        self.column_families.iter().find(|cf| cf.name == name)
    }
}

#[derive(Default)]
struct Parser<'f> {
    file: OptionsFile,
    /// The column family whose options are kept; `None` for all.
    only: Option<&'f [u8]>,
    version: Options,
    section: Section,
    seen_version: bool,
    seen_db: bool,
}

impl Parser<'_> {
    fn read(mut self, text: &str) -> Result<OptionsFile> {
        let mut at = 0u64;
        for line in text.split('\n') {
            self.line(TextSlice::new(at, without_comment(line)).trim())?;
            at += line.len() as u64 + 1;
        }
        self.finish(text.len() as u64)
    }

    /// Whether the options of a column family are kept.
    fn keeps(&self, family: usize) -> bool {
        self.only
            .is_none_or(|only| self.file.column_families[family].name == only)
    }

    fn line(&mut self, line: TextSlice<'_>) -> Result<()> {
        if line.text.is_empty() {
            return Ok(());
        }
        if line.text.starts_with('[') && line.text.ends_with(']') && line.text.len() > 1 {
            self.section = self.open_section(line)?;
            return Ok(());
        }
        let Some((name, value)) = line.text.split_once('=') else {
            return Err(line.corruption("a statement must have a '='"));
        };
        let value = TextSlice::new(line.at + name.len() as u64 + 1, value).trim();
        let name = name.trim_matches(text::is_space);
        if name.is_empty() {
            return Err(line.corruption("a statement must have a name"));
        }
        let options = match self.section {
            Section::ColumnFamily(i) | Section::Table(i) if !self.keeps(i) => return Ok(()),
            Section::None => return Err(line.corruption("a statement outside of sections")),
            Section::Version => &mut self.version,
            Section::Db => &mut self.file.db,
            Section::ColumnFamily(i) => &mut self.file.column_families[i].options,
            Section::Table(i) => &mut self.file.column_families[i].table_options,
        };
        options.insert_first(name, value);
        Ok(())
    }

    /// `[Title]` or `[Title "argument"]`.
    fn open_section(&mut self, line: TextSlice<'_>) -> Result<Section> {
        let inner = &line.text[1..line.text.len() - 1];
        let (title, argument) = match section_argument(inner) {
            Some(argument) => (inner.split('"').next().unwrap_or_default(), argument),
            None => (inner, ""),
        };
        let name = text::unescape_name(argument);
        let title = title.trim_matches(text::is_space);
        let doubled = |seen: &mut bool| std::mem::replace(seen, true);
        match title {
            "Version" if doubled(&mut self.seen_version) => {
                Err(line.corruption("more than one section Version"))
            }
            "Version" => Ok(Section::Version),
            "DBOptions" if doubled(&mut self.seen_db) => {
                Err(line.corruption("more than one section DBOptions"))
            }
            "DBOptions" => Ok(Section::Db),
            "CFOptions" => self.open_column_family(line, name),
            _ => match title.strip_prefix(TABLE_OPTIONS) {
                Some(factory) if !factory.is_empty() => self.open_table(line, factory, &name),
                _ => Err(line.corruption("unknown section")),
            },
        }
    }

    fn open_column_family(&mut self, line: TextSlice<'_>, name: Vec<u8>) -> Result<Section> {
        let families = &mut self.file.column_families;
        if families.is_empty() != (name == DEFAULT_COLUMN_FAMILY) {
            return Err(line.corruption("the default column family must be the first"));
        }
        if families.iter().any(|cf| cf.name == name) {
            return Err(line.corruption("two column families of one name"));
        }
        families.push(ColumnFamilyOptions {
            name,
            ..ColumnFamilyOptions::default()
        });
        Ok(Section::ColumnFamily(families.len() - 1))
    }

    fn open_table(&mut self, line: TextSlice<'_>, factory: &str, name: &[u8]) -> Result<Section> {
        let families = &mut self.file.column_families;
        let Some(i) = families.iter().position(|cf| cf.name == name) else {
            return Err(line.corruption("table options of an unknown column family"));
        };
        if !families[i].table_factory.is_empty() {
            return Err(line.corruption("two sections of table options for one column family"));
        }
        families[i].table_factory = factory.to_owned();
        Ok(Section::Table(i))
    }

    fn finish(mut self, end: u64) -> Result<OptionsFile> {
        if !self.seen_db {
            return Err(Error::corruption(end, "no section DBOptions"));
        }
        if self.file.column_families.is_empty() {
            return Err(Error::corruption(end, "no column family default"));
        }
        self.file.rocksdb_version = version(&self.version, "rocksdb_version")?;
        self.file.options_file_version = version(&self.version, "options_file_version")?;
        Ok(self.file)
    }
}

/// The text between the quotes of a section's line.
fn section_argument(line: &str) -> Option<&str> {
    let (from, to) = (line.find('"')?, line.rfind('"')?);
    line.get(from + 1..to)
}

/// Up to `N` numbers with dots between them; missing numbers are zero.
fn version<const N: usize>(options: &Options, key: &str) -> Result<[u32; N]> {
    let mut out = [0; N];
    let Some(text) = options.str(key) else {
        return Ok(out);
    };
    let malformed =
        || Error::corruption(options.offset(key), format!("option {key}: not a version"));
    for (i, part) in text.split('.').enumerate() {
        let place = out.get_mut(i).ok_or_else(malformed)?;
        if !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        *place = part.parse().map_err(|_| malformed())?;
    }
    Ok(out)
}

/// The line up to the first `#` without a backslash before it.
fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let comment = line
        .match_indices('#')
        .find(|(i, _)| *i == 0 || bytes[i - 1] != b'\\');
    comment.map_or(line, |(i, _)| &line[..i])
}

#[cfg(test)]
mod tests;
