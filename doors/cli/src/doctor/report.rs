//! Report of the doctor.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::CellAlignment;
use rockmill_compaction::{Diagnosis, FamilyDiagnosis};
use rockmill_format::names;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, megabytes};
use serde::Serialize;

use super::doors::{self, Door, Program, Support};
use super::hints::{self, Hint};
use crate::advice::{Decline, Setting};
use crate::service_args::ServiceArgs;

/// A limit that OPTIONS do not contain, and that no file shows in time.
const PATHS: &str = "if the program gives RocksDB several paths (db_paths, cf_paths), they must be on one file system, \
    because RocksDB renames Rockmill's files into them";

/// Maximum column families that are named together.
const SHOWN_NAMES: usize = 4;

/// One column family.
#[derive(Debug, Serialize)]
struct Family {
    name: String,
    files: u64,
    bytes: u64,
    /// Whether all of its compactions would be accepted.
    accepted: bool,
    /// The same if a C++ program attaches its objects.
    accepted_with_attach: bool,
    declines: Vec<Decline>,
}

/// The findings of the doctor.
#[derive(Debug, Serialize)]
pub struct Report {
    options_file: String,
    /// Version of the RocksDB that wrote the OPTIONS file.
    rocksdb_version: String,
    /// Whether Rockmill supports that version.
    support: Support,
    /// Ways by which a program passes its compactions to Rockmill.
    doors: Vec<Door>,
    /// Whether all compactions of all column families would be accepted.
    accepted: bool,
    /// Reasons that apply to all column families.
    declines: Vec<Decline>,
    column_families: Vec<Family>,
    hints: Vec<Hint>,
    /// Facts that OPTIONS do not contain, and on which the acceptance depends.
    notes: [&'static str; 1],
    /// Lines that remove declines.
    settings: Vec<Remedy>,
}

/// A line that removes a decline.
#[derive(Debug, Serialize)]
struct Remedy {
    /// Empty for the database.
    column_families: Vec<String>,
    #[serde(flatten)]
    setting: Setting,
}

/// Reasons that the same column families share.
#[derive(Debug)]
struct Group<'a> {
    /// Empty for the database.
    families: Vec<&'a str>,
    declines: Vec<Decline>,
}

impl Report {
    /// Makes the report of a diagnosis.
    pub fn new(dir: &Path, diagnosis: &Diagnosis, service: &ServiceArgs) -> Self {
        let declines = Decline::all(&diagnosis.database);
        let family = |found: &FamilyDiagnosis| {
            let own = Decline::all(&found.found);
            Family {
                name: names::escape(&found.name),
                files: found.files,
                bytes: found.bytes,
                accepted: declines.is_empty() && own.is_empty(),
                accepted_with_attach: declines.iter().chain(&own).all(|decline| decline.attach),
                declines: own,
            }
        };
        let families: Vec<_> = diagnosis.families.iter().map(family).collect();
        let version = diagnosis
            .options
            .rocksdb_version
            .map(|part| part.to_string());
        let names = diagnosis.families.iter().map(|found| &found.name[..]);
        let program = Program::of(dir, names);
        let mut report = Self {
            options_file: format!("OPTIONS-{:06}", diagnosis.options_number),
            rocksdb_version: version.join("."),
            support: Support::of(diagnosis.options.rocksdb_version),
            doors: doors::all(diagnosis.options.rocksdb_version, program),
            accepted: families.iter().all(|family| family.accepted),
            declines,
            column_families: families,
            hints: hints::all(diagnosis, service),
            notes: [PATHS],
            settings: Vec::new(),
        };
        report.settings = report.remedies();
        report
    }

    /// Returns the failure with which the command ends, if it fails.
    pub fn failure(&self, dir: &Path) -> Option<Failure> {
        let all = self.column_families.len();
        let left = self.column_families.iter().filter(|f| !f.accepted).count();
        (left > 0).then(|| {
            let of = output::count(all, "column family", "column families");
            let has = if left == 1 { "has" } else { "have" };
            let what = "compactions that would be left to RocksDB";
            let dir = dir.display();
            Failure::Data(format!("{dir}: {left} of {of} {has} {what}"))
        })
    }

    /// Prints the report.
    ///
    /// # Errors
    /// Environment if the output cannot be written.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        output::document_or_text(json, self, |out| Ok(self.print_text(out)?))
    }

    /// Groups the reasons. A reason of several column families is in one group with all of them; `--json` lists each
    /// family.
    fn grouped(&self) -> Vec<Group<'_>> {
        let mut reasons: Vec<(Vec<&str>, Decline)> = Vec::new();
        for family in &self.column_families {
            for decline in &family.declines {
                let same = |known: &Decline| {
                    (known.reason, &known.what) == (decline.reason, &decline.what)
                };
                match reasons.iter_mut().find(|(_, known)| same(known)) {
                    Some((names, known)) => {
                        names.push(&family.name);
                        known.files.extend_from_slice(&decline.files);
                    }
                    None => reasons.push((vec![&family.name], decline.clone())),
                }
            }
        }
        let of_database = self.declines.iter().cloned();
        let of_database = of_database.map(|decline| (Vec::new(), decline));
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (families, decline) in of_database.chain(reasons) {
            match groups.iter_mut().find(|group| group.families == families) {
                Some(group) => group.declines.push(decline),
                None => groups.push(Group {
                    families,
                    declines: vec![decline],
                }),
            }
        }
        groups
    }

    /// Returns the lines that remove declines, each once for the same column families.
    fn remedies(&self) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        for group in self.grouped() {
            let mut known: Vec<Setting> = Vec::new();
            for setting in group.declines.iter().filter_map(Decline::setting) {
                if !known.contains(&setting) {
                    known.push(setting);
                }
            }
            let column_families: Vec<_> =
                group.families.iter().map(|&name| name.to_owned()).collect();
            remedies.extend(known.into_iter().map(|setting| Remedy {
                column_families: column_families.clone(),
                setting,
            }));
        }
        remedies
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (options, version) = (&self.options_file, &self.rocksdb_version);
        writeln!(out, "{options}, {}\n", self.support.line(version))?;
        writeln!(out, "ways to open it with Rockmill")?;
        self.doors.iter().try_for_each(|door| door.print(out))?;
        writeln!(out)?;
        let mut table = output::table(["column family", "files", "MB", "compactions"]);
        for family in &self.column_families {
            let verdict = match (family.accepted, self.declines.len() + family.declines.len()) {
                (true, _) => "accepted".to_owned(),
                (false, reasons) => {
                    let reasons = output::count(reasons, "reason", "reasons");
                    format!("left to RocksDB for {reasons}")
                }
            };
            let (files, size) = (family.files.to_string(), megabytes(family.bytes));
            table.add_row([family.name.clone(), files, size, verdict]);
        }
        for column in table.column_iter_mut().skip(1).take(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        for group in self.grouped() {
            writeln!(
                out,
                "\n{}",
                output::indented(&self.together(&group.families), 0)
            )?;
            let families = self.column_families.iter();
            let families = families.filter(|family| group.families.contains(&family.name.as_str()));
            let files = families.map(|family| family.files).sum();
            let mut declines = group.declines.iter();
            declines.try_for_each(|decline| decline.print(out, Some(files)))?;
        }
        self.print_attach(out)?;
        self.print_hints(out)?;
        self.print_settings(out)
    }

    /// Prints the reasons that go if a C++ program attaches its objects.
    fn print_attach(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut groups: Vec<(Vec<&str>, Vec<&str>, usize)> = Vec::new();
        for family in &self.column_families {
            let all = self.declines.iter().chain(&family.declines);
            let (gone, left): (Vec<_>, Vec<_>) = all.partition(|decline| decline.attach);
            let mut gone: Vec<_> = gone.iter().map(|decline| decline.reason).collect();
            gone.sort_unstable();
            gone.dedup();
            if gone.is_empty() {
                continue;
            }
            let mut known = groups.iter_mut();
            match known.find(|group| group.1 == gone && group.2 == left.len()) {
                Some((names, ..)) => names.push(&family.name),
                None => groups.push((vec![&family.name], gone, left.len())),
            }
        }
        if !groups.is_empty() {
            writeln!(
                out,
                "\nwhat rockmill::Attach in C++ and rockmill_attach in Rust add"
            )?;
        }
        for (families, gone, left) in groups {
            let left = match left {
                0 => "no reason is left".to_owned(),
                left => format!("{} left", output::count(left, "reason is", "reasons are")),
            };
            let (families, gone) = (self.together(&families), gone.join(" and "));
            let line = format!("{families}: without {gone}, {left}");
            writeln!(out, "{}", output::indented(&line, 2))?;
        }
        Ok(())
    }

    /// Prints each hint once, with the column families that have it.
    fn print_hints(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.hints.is_empty() {
            writeln!(out, "\nwhat helps")?;
        }
        let mut groups: Vec<(Vec<&str>, &Hint)> = Vec::new();
        for hint in &self.hints {
            let same = |(_, known): &&mut (Vec<&str>, &Hint)| {
                (known.option, &known.value, &known.set) == (hint.option, &hint.value, &hint.set)
            };
            let family = hint.column_family.as_deref();
            match groups.iter_mut().find(same) {
                Some((families, _)) => families.extend(family),
                None => groups.push((family.into_iter().collect(), hint)),
            }
        }
        for (families, hint) in groups {
            let Hint {
                option, value, why, ..
            } = hint;
            let of = match families.as_slice() {
                [] => String::new(),
                families => format!("{}: ", self.together(families)),
            };
            let found = format!("{of}{option} is {value}: {why}");
            writeln!(out, "{}", output::indented(&found, 2))?;
            if let Some(set) = &hint.set {
                writeln!(out, "{}", output::indented(&format!("set: {set}"), 4))?;
            }
        }
        writeln!(out, "\nwhat OPTIONS do not say")?;
        let mut notes = self.notes.iter();
        notes.try_for_each(|note| writeln!(out, "{}", output::indented(note, 2)))
    }

    fn print_settings(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.settings.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nsettings that remove declines")?;
        for Remedy {
            column_families,
            setting: Setting { of, line },
        } in &self.settings
        {
            let names: Vec<_> = column_families.iter().map(String::as_str).collect();
            let what = format!("{of}, {}", self.together(&names));
            writeln!(out, "{}\n    {line}", output::indented(&what, 2))?;
        }
        Ok(())
    }

    /// Names several column families together; none for the database.
    fn together(&self, names: &[&str]) -> String {
        match names {
            [] => "the database".to_owned(),
            names => together(names, self.column_families.len()),
        }
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
