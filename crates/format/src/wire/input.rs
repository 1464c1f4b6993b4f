//! RocksDB's request to a worker: one subcompaction.

use super::value::{Fields, Out, Record, write_field};
use super::{envelope, open_envelope};
use crate::error::{Error, Result};
use crate::options_file::Options;
use crate::options_file::text::TextSlice;
use crate::versions;

/// The options that RocksDB before 9.7.3 sends in the message, unchanged. The message names no OPTIONS file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenOptions {
    /// Those of the database.
    pub db: String,
    /// Options of the column family. They have only the name of the table factory, not its options.
    pub column_family: String,
}

impl GivenOptions {
    /// Returns the name of an option whose value differs in an OPTIONS file; `None` if there is none. An option that
    /// only one of them has does not count.
    ///
    /// # Errors
    /// Corruption if there are no options or they are malformed; Unsupported if they are nested too deeply.
    pub fn differing(&self, db: &Options, column_family: &Options) -> Result<Option<String>> {
        for (text, file) in [(&self.db, db), (&self.column_family, column_family)] {
            let given = Options::from_value(text)?;
            if given.is_empty() {
                return Err(Error::corruption(0, "the message has no options"));
            }
            let mut both = given
                .iter()
                .filter_map(|(name, value)| Some((name, value, file.str(name)?)));
            if let Some((name, ..)) = both.find(|(_, value, filed)| value != filed) {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }
}

/// The message to a worker (`CompactionServiceInput`, `db/compaction/compaction_job.h`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionServiceInput {
    /// Name of the column family.
    pub cf_name: Vec<u8>,
    /// Sequence numbers of the live snapshots, strictly increasing.
    pub snapshots: Vec<u64>,
    /// Base names of the input SST files, such as `000011.sst`.
    pub input_files: Vec<String>,
    /// Level that the output files go to.
    pub output_level: i32,
    /// Identity of the database.
    pub db_id: Vec<u8>,
    /// First user key of the job; `None` if nothing bounds it below.
    pub begin: Option<Vec<u8>>,
    /// Exclusive end of the job, a user key; `None` if nothing bounds it above.
    pub end: Option<Vec<u8>>,
    /// Number of the OPTIONS file to use; 0 if RocksDB did not pass it.
    pub options_file_number: u64,
    /// Number of the oldest MANIFEST that shows all input files; 0 if RocksDB did not pass it.
    pub min_manifest_file_number: u64,
    /// Length in bytes from which on that MANIFEST shows them.
    pub min_manifest_file_size: u64,
    /// What RocksDB before 9.7.3 sends in place of `options_file_number`.
    pub options: Option<GivenOptions>,
}

impl CompactionServiceInput {
    /// Reads the message.
    ///
    /// # Errors
    /// Unsupported for another version, or if an unknown field is set. Corruption if the text is malformed, if
    /// snapshots are not strictly increasing, or if an input file is not a plain base name.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let text = open_envelope(bytes)?;
        let fields = Fields::parse(text)?;
        let mut unknown = fields
            .iter()
            .filter(|(name, _)| !versions::is_input_field(name));
        if let Some((name, value)) = unknown.find(|(_, value)| !is_unset(value)) {
            let what = format!("RocksDB sets the field {name}, which is unknown");
            return Err(Error::unsupported(value.at, what));
        }
        let input = Self::read_fields(&fields)?;
        if !input.snapshots.is_sorted_by(|a, b| a < b) {
            let at = fields.get("snapshots").unwrap_or(text);
            return Err(at.corruption("snapshots are not strictly increasing"));
        }
        Ok(input)
    }

    /// Writes the message, as RocksDB would.
    pub fn encode(&self) -> Vec<u8> {
        envelope(self, [0; 3])
    }
}

impl Record for CompactionServiceInput {
    fn write_fields(&self, out: &mut Out) {
        match &self.options {
            None => write_field(out, "cf_name", &self.cf_name),
            Some(options) => {
                out.text.push_str("column_family={options=");
                out.text.push_str(&options.column_family);
                out.text.push(';');
                write_field(out, "name", &self.cf_name);
                out.text.push_str("};db_options=");
                out.text.push_str(&options.db);
                out.text.push(';');
            }
        }
        write_field(out, "snapshots", &self.snapshots);
        write_field(out, "input_files", &self.input_files);
        write_field(out, "output_level", &self.output_level);
        write_field(out, "db_id", &self.db_id);
        for (flag, key, bound) in [
            ("has_begin", "begin", &self.begin),
            ("has_end", "end", &self.end),
        ] {
            write_field(out, flag, &bound.is_some());
            write_field(out, key, &bound.clone().unwrap_or_default());
        }
        write_field(out, "options_file_number", &self.options_file_number);
        write_field(
            out,
            "min_manifest_file_number",
            &self.min_manifest_file_number,
        );
        write_field(out, "min_manifest_file_size", &self.min_manifest_file_size);
    }

    fn read_fields(fields: &Fields<'_>) -> Result<Self> {
        let mut input = Self::default();
        fields.read("cf_name", &mut input.cf_name)?;
        if let Some(family) = fields.get("column_family") {
            let family = Fields::parse(family)?;
            family.read("name", &mut input.cf_name)?;
            input.options = Some(GivenOptions {
                db: given(fields.get("db_options"))?,
                column_family: given(family.get("options"))?,
            });
        }
        fields.read("snapshots", &mut input.snapshots)?;
        fields.read("input_files", &mut input.input_files)?;
        fields.read("output_level", &mut input.output_level)?;
        fields.read("db_id", &mut input.db_id)?;
        input.begin = bound(fields, "has_begin", "begin")?;
        input.end = bound(fields, "has_end", "end")?;
        fields.read("options_file_number", &mut input.options_file_number)?;
        fields.read(
            "min_manifest_file_number",
            &mut input.min_manifest_file_number,
        )?;
        fields.read("min_manifest_file_size", &mut input.min_manifest_file_size)?;
        Ok(input)
    }
}

/// Whether an unknown field has the text of most members' defaults. Another default counts as set.
fn is_unset(value: &TextSlice<'_>) -> bool {
    matches!(value.text, "" | "0" | "false" | "{}")
}

/// The text of a struct, with its braces.
fn given(value: Option<TextSlice<'_>>) -> Result<String> {
    let Some(value) = value else {
        return Ok(String::new());
    };
    if value.without_braces()? == value {
        return Err(value.corruption("options must stand in braces"));
    }
    Ok(value.text.to_owned())
}

fn bound(fields: &Fields<'_>, flag: &str, key: &str) -> Result<Option<Vec<u8>>> {
    let mut given = false;
    let mut bytes = Vec::new();
    fields.read(flag, &mut given)?;
    fields.read(key, &mut bytes)?;
    Ok(given.then_some(bytes))
}
