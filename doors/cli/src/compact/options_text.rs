//! The OPTIONS file that opening a database writes, and the OPTIONS text for opening it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rockmill_format::options_file::OptionsFile;
use rockmill_side_by_side::rocksdb;
use rockmill_snapshot::closed_database::options_number;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::{Cache, ColumnFamilyDescriptor, Env, Options};

use super::objects::{self, NULL, ONLY_COMPACTING};

/// Size of the block cache in bytes. Compactions do not use it.
const CACHE_BYTES: usize = 8 << 20;

/// Column family option that the command sets while it has the database open.
const NO_COMPACTIONS: &str = "disable_auto_compactions";
/// Column family option whose object the user states.
const MERGE_OPERATOR: &str = "merge_operator";
/// Database option that the command sets while it has the database open.
const NO_FLUSH: &str = "avoid_flush_during_recovery";

/// Rewrites the values in the text of an OPTIONS file. `edit` gets the column family's position in the file, the option
/// and its value. RocksDB writes the database's options first, and a family's table options after its own.
fn edited(text: &str, edit: impl Fn(Option<usize>, &str, &str) -> Option<String>) -> String {
    let mut families = 0usize;
    let mut with = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim();
        families += usize::from(trimmed.starts_with("[CFOptions "));
        let is_section = trimmed.starts_with('[');
        let option = trimmed.split_once('=').filter(|_| !is_section);
        let edit = |(key, value)| Some((key, edit(families.checked_sub(1), key, value)?));
        match option.and_then(edit) {
            Some((key, value)) => with.push_str(&format!("  {key}={value}")),
            None => with.push_str(line),
        }
        with.push('\n');
    }
    with
}

/// Returns the OPTIONS text for opening a database: no automatic compactions, no flush during recovery, and the given
/// bits per key and values of `merge_operator`. `bits` and `operators` are in the order of the text's column families.
/// Every version of RocksDB writes lines for all of these options. Objects that other families than the compacted one do
/// without are left out.
pub fn for_opening(text: &str, bits: &[Option<u32>], operators: &[String]) -> String {
    edited(text, |family, key, value| match key {
        NO_COMPACTIONS | NO_FLUSH => Some("true".to_owned()),
        // In a file, this character begins a comment unless it is escaped.
        MERGE_OPERATOR => Some(
            operators
                .get(family?)?
                .replace("\\#", "#")
                .replace('#', "\\#"),
        ),
        key if objects::is_left_out(key, value) => Some(NULL.to_owned()),
        "filter_policy" => {
            let millibits = (*bits.get(family?)?)?;
            Some(format!("{value}:{}", f64::from(millibits) / 1e3))
        }
        _ => with_decimal_points(value),
    })
}

/// Returns a value whose numbers have points in place of decimal commas, if there are any. RocksDB writes fractions with
/// six digits and the decimal point of the process's locale, and would read `0,250000` as 0 in this one's.
fn with_decimal_points(value: &str) -> Option<String> {
    const DECIMALS: usize = 6;
    let mut bytes = value.as_bytes().to_vec();
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let mut is_changed = false;
    for at in 1..bytes.len() {
        let decimals = bytes[at..]
            .iter()
            .skip(1)
            .take_while(|byte| byte.is_ascii_digit());
        if bytes[at] == b',' && is_digit(bytes.get(at - 1)) && decimals.count() == DECIMALS {
            bytes[at] = b'.';
            is_changed = true;
        }
    }
    String::from_utf8(bytes).ok().filter(|_| is_changed)
}

/// Returns the values of `merge_operator` as the text has them, in the order of its column families.
pub fn merge_operators(text: &str) -> Vec<String> {
    let values = RefCell::new(BTreeMap::new());
    edited(text, |family, key, value| {
        if key == MERGE_OPERATOR {
            values.borrow_mut().insert(family, value.to_owned());
        }
        None
    });
    values.into_inner().into_values().collect()
}

/// Lets RocksDB parse the text of an OPTIONS file.
///
/// # Errors
/// Environment or Data if it cannot.
pub fn load(text: &str) -> Result<(Options, Vec<ColumnFamilyDescriptor>), Failure> {
    let scratch = tempfile::tempdir()
        .and_then(|dir| fs::write(dir.path().join("OPTIONS-000001"), text).map(|()| dir))
        .map_err(|e| Failure::Environment(format!("cannot make a temporary file: {e}")))?;
    let ignore_unknown = false;
    let env = Env::new().map_err(|e| rocksdb::failed("start", &e))?;
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    Options::load_latest(scratch.path(), env, ignore_unknown, cache)
        .map_err(|e| rocksdb::failed("read the OPTIONS file", &e))
}

/// The OPTIONS file that RocksDB writes when it opens the database.
#[derive(Debug)]
pub struct Written(PathBuf);

impl Written {
    /// Finds that file for a database that was just opened, and replaces its options with the database's own, from the
    /// OPTIONS file `own_number`, whose values of `merge_operator` are `operators`. A process that is killed leaves this file
    /// as the newest.
    ///
    /// # Errors
    /// Environment if there is no such file, or it cannot be read or replaced.
    pub fn find(
        dir: &Path,
        own: &OptionsFile,
        operators: &[String],
        own_number: u64,
    ) -> Result<Self, Failure> {
        let newer = newer(dir, own_number).map_err(|e| failed(dir, "look for OPTIONS", &e))?;
        let newest = newer.into_iter().next_back().ok_or_else(|| {
            let what = "RocksDB has not written an OPTIONS file; see its LOG";
            Failure::Environment(format!("{}: {what}", dir.display()))
        })?;
        replace(&newest, own, operators).map_err(|e| failed(&newest, "replace it", &e))?;
        Ok(Self(newest))
    }

    /// Removes the file, so that the database's own is the newest again. The database must be closed.
    ///
    /// # Errors
    /// Environment if it cannot be removed.
    pub fn remove(self) -> Result<(), Failure> {
        fs::remove_file(&self.0).map_err(|e| failed(&self.0, "remove it", &e))
    }
}

fn failed(path: &Path, doing: &str, error: &io::Error) -> Failure {
    Failure::Environment(format!("{}: cannot {doing}: {error}", path.display()))
}

/// Removes the OPTIONS files newer than `own_number`, which a failed open has written.
///
/// # Errors
/// Environment if one cannot be removed.
pub fn remove_newer(dir: &Path, own_number: u64) -> Result<(), Failure> {
    let newer = newer(dir, own_number).map_err(|e| failed(dir, "look for OPTIONS", &e))?;
    newer
        .into_iter()
        .try_for_each(|path| Written(path).remove())
}

/// Returns the OPTIONS files newer than `own_number`, the newest last.
fn newer(dir: &Path, own_number: u64) -> io::Result<Vec<PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(options_number);
        found.extend(number.map(|number| (number, entry.path())));
    }
    Ok(found
        .split_off(&own_number.saturating_add(1))
        .into_values()
        .collect())
}

fn replace(path: &Path, own: &OptionsFile, operators: &[String]) -> io::Result<()> {
    let text = fs::read_to_string(path)?;
    let written = OptionsFile::parse(&text).map_err(io::Error::other)?;
    let of_family = |position: usize| {
        let family = written.column_families.get(position)?;
        Some(&own.cf(&family.name)?.options)
    };
    let text = edited(&text, |family, key, _| {
        let options = match (family, key) {
            (None, NO_FLUSH) => &own.db,
            (Some(family), NO_COMPACTIONS) => of_family(family)?,
            (Some(family), key) if ONLY_COMPACTING.contains(&key) => {
                return of_family(family)?.str(key).map(str::to_owned);
            }
            (Some(family), MERGE_OPERATOR) => {
                let name = &written.column_families.get(family)?.name;
                let mut names = own.column_families.iter().map(|family| &family.name);
                let at = names.position(|own| own == name)?;
                return operators.get(at).cloned();
            }
            _ => return None,
        };
        Some(options.str(key).unwrap_or("false").to_owned())
    });
    // RocksDB removes files with this suffix, so none stays behind if this process is killed.
    let temporary = path.with_extension("dbtmp");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_to_the_policies_of_their_families() {
        let text = "[CFOptions \"default\"]\n[TableOptions/BlockBasedTable \"default\"]\n  \
                    filter_policy=bloomfilter\n[CFOptions \"b\"]\n\
                    [TableOptions/BlockBasedTable \"b\"]\n  filter_policy=nullptr\n\
                    [CFOptions \"c\"]\n[TableOptions/BlockBasedTable \"c\"]\n  \
                    filter_policy=ribbonfilter\n";
        let with = for_opening(text, &[Some(10_000), None, Some(9_900)], &[]);
        let policies: Vec<_> = with
            .lines()
            .filter(|line| line.contains("policy"))
            .collect();
        assert_eq!(
            policies,
            [
                "  filter_policy=bloomfilter:10",
                "  filter_policy=nullptr",
                "  filter_policy=ribbonfilter:9.9"
            ]
        );
        assert_eq!(for_opening(text, &[None, None, None], &[]), text);
    }

    #[test]
    fn decimal_commas_become_points() {
        for (value, expected) in [
            ("0,250000", Some("0.250000")),
            ("{a=-1,000000;b=x,250000}", Some("{a=-1.000000;b=x,250000}")),
            ("0.250000", None),
            ("1,2500000", None),
            (",250000", None),
            ("é,250000", None),
        ] {
            assert_eq!(with_decimal_points(value).as_deref(), expected, "{value}");
        }
        let text = "[DBOptions]\n  ratio=0,500000\n[CFOptions \"a=0,500000\"]\n";
        let points = "[DBOptions]\n  ratio=0.500000\n[CFOptions \"a=0,500000\"]\n";
        assert_eq!(for_opening(text, &[], &[]), points);
    }

    #[test]
    fn filters_that_only_the_application_has_are_left_out() {
        let family = |name: &str, filter: &str| {
            format!("[CFOptions \"{name}\"]\n  compaction_filter={filter}\n  comparator=mine\n")
        };
        let text = |[first, second]: [&str; 2]| {
            "[DBOptions]\n  x=1\n".to_owned() + &family("default", first) + &family("b", second)
        };
        let of_rocksdb = "{id=RemoveEmptyValueCompactionFilter;}";
        let own = text(["mine", of_rocksdb]);
        let opened = for_opening(&own, &[], &[]);
        assert_eq!(opened, text(["nullptr", of_rocksdb]));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let written = dir.path().join("OPTIONS-000012");
        fs::write(&written, opened).expect("write");
        let parsed = OptionsFile::parse(&own).expect("an OPTIONS file");
        Written::find(dir.path(), &parsed, &[], 7).expect("found");
        assert_eq!(fs::read_to_string(written).expect("read"), own);
    }

    #[test]
    fn a_written_file_gets_the_databases_own_options_back() {
        let text = |flush: &str, default: &str, other: &str, operators: [&str; 2]| {
            let [of_default, of_other] = operators;
            format!(
                "[DBOptions]\n  {NO_FLUSH}={flush}\n[CFOptions \"default\"]\n  \
                 {NO_COMPACTIONS}={default}\n  {MERGE_OPERATOR}={of_default}\n[CFOptions \"other\"]\n  \
                 {NO_COMPACTIONS}={other}\n  {MERGE_OPERATOR}={of_other}\n"
            )
        };
        let own_operators = ["{id=StringAppendOperator;delimiter=\\#;}", "mine"];
        let own = text("false", "false", "true", own_operators);
        let stated = ["nullptr", "{id=stringappend;delimiter=\\#}"];
        let opened = text("true", "true", "true", stated);
        let given = ["nullptr", "{id=stringappend;delimiter=#}"].map(str::to_owned);
        assert_eq!(for_opening(&own, &[], &given), opened);
        let operators = merge_operators(&own);
        assert_eq!(operators, own_operators);
        let parsed = OptionsFile::parse(&own).expect("an OPTIONS file");
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("OPTIONS-000007"), "older").expect("write");
        let newest = dir.path().join("OPTIONS-000012");
        fs::write(&newest, opened).expect("write");
        let none = Written::find(dir.path(), &parsed, &operators, 12)
            .expect_err("it is the database's own");
        assert_eq!(none.exit_code(), 3);
        let written = Written::find(dir.path(), &parsed, &operators, 7).expect("found");
        let now = fs::read_to_string(&newest).expect("read");
        assert_eq!(now, own);
        written.remove().expect("removed");
        let left = fs::read_dir(dir.path()).expect("list").count();
        assert_eq!((left, newest.exists()), (1, false));
    }

    #[test]
    fn what_a_failed_opening_has_written_is_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in [
            "OPTIONS-000005",
            "OPTIONS-000007",
            "OPTIONS-000012",
            "OPTIONS-1000000",
        ] {
            fs::write(dir.path().join(name), "").expect("write");
        }
        fs::write(dir.path().join("OPTIONS-000015.dbtmp"), "").expect("write");
        remove_newer(dir.path(), 7).expect("removed");
        let left = fs::read_dir(dir.path()).expect("list");
        let mut left: Vec<_> = left.map(|entry| entry.expect("list").file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            ["OPTIONS-000005", "OPTIONS-000007", "OPTIONS-000015.dbtmp"]
        );
    }
}
