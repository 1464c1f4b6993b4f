//! Report of the doctor.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::CellAlignment;
use rockmill_compaction::{Diagnosis, FamilyDiagnosis};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::hints::{self, Hint};
use crate::advice::Decline;
use crate::service_args::ServiceArgs;

/// Most column families that are named together.
const SHOWN_NAMES: usize = 4;

/// One column family.
#[derive(Debug, Serialize)]
struct Family {
    name: String,
    files: u64,
    bytes: u64,
    /// Whether all of its compactions would be accepted.
    accepted: bool,
    declines: Vec<Decline>,
}

/// The findings of the doctor.
#[derive(Debug, Serialize)]
pub struct Report {
    options_file: String,
    /// Version of the RocksDB that wrote the OPTIONS file.
    rocksdb_version: String,
    /// Whether all compactions of all column families would be accepted.
    accepted: bool,
    /// Reasons that apply to all column families.
    declines: Vec<Decline>,
    column_families: Vec<Family>,
    hints: Vec<Hint>,
}

impl Report {
    /// Makes the report of a diagnosis.
    pub fn new(diagnosis: &Diagnosis, service: &ServiceArgs) -> Self {
        let declines = Decline::all(&diagnosis.database);
        let family = |found: &FamilyDiagnosis| {
            let own = Decline::all(&found.found);
            Family {
                name: output::escape(&found.name),
                files: found.files,
                bytes: found.bytes,
                accepted: declines.is_empty() && own.is_empty(),
                declines: own,
            }
        };
        let families: Vec<_> = diagnosis.families.iter().map(family).collect();
        let version = diagnosis
            .options
            .rocksdb_version
            .map(|part| part.to_string());
        Self {
            options_file: format!("OPTIONS-{:06}", diagnosis.options_number),
            rocksdb_version: version.join("."),
            accepted: families.iter().all(|family| family.accepted),
            declines,
            column_families: families,
            hints: hints::all(diagnosis, service),
        }
    }

    /// Returns the failure with which the command ends, if it fails.
    pub fn failure(&self, dir: &Path) -> Option<Failure> {
        let all = self.column_families.len();
        let left = self.column_families.iter().filter(|f| !f.accepted).count();
        (left > 0).then(|| {
            let what = "have compactions that would be left to RocksDB";
            let dir = dir.display();
            Failure::Data(format!("{dir}: {left} of {all} column families {what}"))
        })
    }

    /// Prints the report.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        output::document_or_text(json, self, |out| Ok(self.print_text(out)?))
    }

    /// Groups the reasons by column family. Families with the same reasons share one group; `--json` lists each family.
    fn grouped(&self) -> Vec<(String, Vec<Decline>)> {
        let mut groups: Vec<(Vec<&str>, Vec<Decline>)> = Vec::new();
        for family in self
            .column_families
            .iter()
            .filter(|f| !f.declines.is_empty())
        {
            let same = |(_, known): &&mut (_, Vec<Decline>)| Decline::same(known, &family.declines);
            match groups.iter_mut().find(same) {
                Some((names, known)) => {
                    names.push(&family.name);
                    let files = family.declines.iter().map(|decline| &decline.files);
                    let known = known.iter_mut().zip(files);
                    known.for_each(|(known, files)| known.files.extend_from_slice(files));
                }
                None => groups.push((vec![&family.name], family.declines.clone())),
            }
        }
        let database = (!self.declines.is_empty()).then(|| self.declines.clone());
        let database = database.map(|declines| ("the database".to_owned(), declines));
        let all = self.column_families.len();
        let families = groups.into_iter();
        let families = families.map(|(names, declines)| (together(&names, all), declines));
        database.into_iter().chain(families).collect()
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (options, version) = (&self.options_file, &self.rocksdb_version);
        writeln!(out, "{options}, written by RocksDB {version}")?;
        let mut table = output::table(["column family", "files", "MB", "compactions"]);
        for family in &self.column_families {
            let verdict = match (family.accepted, self.declines.len() + family.declines.len()) {
                (true, _) => "accepted".to_owned(),
                (false, 1) => "left to RocksDB for 1 reason".to_owned(),
                (false, reasons) => format!("left to RocksDB for {reasons} reasons"),
            };
            let (files, size) = (family.files.to_string(), megabytes(family.bytes));
            table.add_row([family.name.clone(), files, size, verdict]);
        }
        for column in table.column_iter_mut().skip(1).take(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        for (of, declines) in self.grouped() {
            writeln!(out, "\n{of}")?;
            declines.iter().try_for_each(|decline| decline.print(out))?;
        }
        if !self.hints.is_empty() {
            writeln!(out, "\nwhat helps")?;
        }
        for hint in &self.hints {
            let family = hint.column_family.as_ref();
            let of = family.map(|name| format!("{name}: ")).unwrap_or_default();
            let Hint {
                option,
                value,
                set,
                why,
                ..
            } = hint;
            writeln!(out, "  {of}{option} is {value}: {why}")?;
            writeln!(out, "    set: {set}")?;
        }
        Ok(())
    }
}

/// Names several column families together.
fn together(names: &[&str], all: usize) -> String {
    match names {
        [name] => format!("column family {name}"),
        names if names.len() == all => format!("all {all} column families"),
        names => {
            let (shown, more) = names.split_at(names.len().min(SHOWN_NAMES));
            let more = match more.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("column families {}{more}", shown.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_families_are_named_together() {
        for (names, all, said) in [
            (&["a"][..], 1, "column family a"),
            (&["a", "b"], 2, "all 2 column families"),
            (&["a", "b"], 3, "column families a, b"),
            (
                &["a", "b", "c", "d", "e"],
                6,
                "column families a, b, c, d and 1 more",
            ),
        ] {
            assert_eq!(together(names, all), said);
        }
    }
}
