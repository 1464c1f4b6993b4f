//! Options that could be better, although no job is declined for them.

use rockmill_compaction::{Diagnosis, FamilyDiagnosis, filter_policy_without_bits};
use rockmill_format::names;
use rockmill_format::options_file::Options;
use serde::Serialize;

use crate::service_args::ServiceArgs;

/// Smallest file size without a hint. A subcompaction covers two files; with smaller ones it takes less time than
/// opening its inputs and syncing its outputs.
const SMALL_FILE_BYTES: u64 = 16 << 20;

/// RocksDB's default of `target_file_size_base`.
const DEFAULT_FILE_BYTES: u64 = 64 << 20;

/// RocksDB's default of `max_background_jobs`.
const DEFAULT_JOBS: i64 = 2;

/// Number of background jobs with which RocksDB offers three compactions at a time.
const ENOUGH_JOBS: i64 = 4;

/// An option that could be better, although no job is declined for it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// `null` for an option of the database.
    pub column_family: Option<String>,
    pub option: &'static str,
    /// Value as in OPTIONS.
    pub value: String,
    /// Value to set instead, or the setting for the service; `null` if there is nothing to set.
    pub set: Option<String>,
    pub why: &'static str,
}

impl Hint {
    fn of_database(
        option: &'static str,
        value: impl ToString,
        set: impl ToString,
        why: &'static str,
    ) -> Self {
        Self {
            column_family: None,
            option,
            value: value.to_string(),
            set: Some(set.to_string()),
            why,
        }
    }
}

/// Returns hints for the database and all its column families. Options that cannot be read give no hint; they are
/// declined.
pub fn all(diagnosis: &Diagnosis, service: &ServiceArgs) -> Vec<Hint> {
    let db = &diagnosis.options.db;
    let mut hints: Vec<_> = background_jobs(db).into_iter().collect();
    hints.extend(subcompactions(db));
    if service.write_committed && db.bool("allow_2pc", false) == Ok(true) {
        let why = "the service is not told which policy transactions have";
        let set = "write_committed() of the service";
        hints.push(Hint::of_database("allow_2pc", true, set, why));
    }
    for family in &diagnosis.families {
        hints.extend(incremental(diagnosis, family));
        hints.extend(ttl(diagnosis, family));
        hints.extend(file_size(diagnosis, family));
        hints.extend(filter_bits(diagnosis, family, service));
    }
    hints
}

/// Suggests more background jobs if `DBImpl::GetBGJobLimits` allows few compactions at once.
fn background_jobs(db: &Options) -> Option<Hint> {
    let number = |key, default| db.i64(key, default).ok();
    let jobs = number("max_background_jobs", DEFAULT_JOBS)?;
    let flushes = number("max_background_flushes", -1)?;
    let compactions = number("max_background_compactions", -1)?;
    let why = "RocksDB offers one job at a time";
    if flushes == -1 && compactions == -1 {
        let at_once = jobs - (jobs / 4).max(1);
        let few = at_once <= 1;
        few.then(|| Hint::of_database("max_background_jobs", jobs, ENOUGH_JOBS, why))
    } else {
        let few = compactions <= 1;
        let set = ENOUGH_JOBS - 1;
        few.then(|| Hint::of_database("max_background_compactions", compactions, set, why))
    }
}

fn subcompactions(db: &Options) -> Option<Hint> {
    let parts = db.u64("max_subcompactions", 1).ok()?;
    let why = "RocksDB cuts jobs before it offers them, and Rockmill cuts them itself";
    (parts > 1).then(|| Hint::of_database("max_subcompactions", parts, 1, why))
}

/// Warns about a fault of RocksDB itself. In `compaction_picker_universal.cc:PickIncrementalForReduceSizeAmp`, the window
/// over the last level moves past its last file if files of the level above have only larger keys, and takes more than half
/// of `max_compaction_bytes`. RocksDB then reads a file that is not there.
fn incremental(diagnosis: &Diagnosis, family: &FamilyDiagnosis) -> Option<Hint> {
    let options = &diagnosis.options.cf(&family.name)?.options;
    let universal = options.nested("compaction_options_universal").ok()?;
    let is_on = options.str("compaction_style") == Some("kCompactionStyleUniversal")
        && universal.str("incremental") == Some("true");
    is_on.then(|| Hint {
        column_family: Some(names::escape(&family.name)),
        option: "compaction_options_universal.incremental",
        value: "true".to_owned(),
        set: Some("false".to_owned()),
        why: "RocksDB, up to 11.12 at least and also without Rockmill, may crash when it picks a compaction, if the \
              level above the last has larger keys than the last",
    })
}

/// Describes what `DBWithTTL` adds to values (`db_ttl_impl.cc:AppendTS`), because other readers see it.
fn ttl(diagnosis: &Diagnosis, family: &FamilyDiagnosis) -> Option<Hint> {
    /// The class of `DBWithTTL`, and the name that RocksDB up to 6.20 gave its objects.
    const NAMES: [&str; 2] = ["TtlCompactionFilter", "Delete By TTL"];
    let options = &diagnosis.options.cf(&family.name)?.options;
    let filters = ["compaction_filter", "compaction_filter_factory"];
    let option = filters.into_iter().find(|option| {
        let filter = options.str(option).unwrap_or_default();
        NAMES.iter().any(|name| filter.contains(name))
    })?;
    Some(Hint {
        column_family: Some(names::escape(&family.name)),
        option,
        value: "that of DBWithTTL".to_owned(),
        set: None,
        why: "the last 4 bytes of each value are the time of its write, in seconds since 1970; a table in SQL says \
              'value' 'rest body, i32le written_at'",
    })
}

fn file_size(diagnosis: &Diagnosis, family: &FamilyDiagnosis) -> Option<Hint> {
    let options = diagnosis.options.cf(&family.name)?;
    let size = options
        .options
        .u64("target_file_size_base", DEFAULT_FILE_BYTES);
    let size = size.ok().filter(|&size| size < SMALL_FILE_BYTES)?;
    Some(Hint {
        column_family: Some(names::escape(&family.name)),
        option: "target_file_size_base",
        value: size.to_string(),
        set: Some(DEFAULT_FILE_BYTES.to_string()),
        why: "subcompactions are two files, and small ones take longer to begin than to do",
    })
}

fn filter_bits(
    diagnosis: &Diagnosis,
    family: &FamilyDiagnosis,
    service: &ServiceArgs,
) -> Option<Hint> {
    let policy = filter_policy_without_bits(diagnosis.options.cf(&family.name)?)?;
    let said = service.filter_millibits_per_key();
    let known = said.or(family.learned_millibits_per_key);
    let bits = match known {
        Some(millibits) => format!("{:?}", f64::from(millibits) / 1e3),
        // Already declined because of the missing bits, unless there is no file yet.
        None if family.files > 0 => return None,
        None => "..".to_owned(),
    };
    Some(Hint {
        column_family: Some(names::escape(&family.name)),
        option: "filter_policy",
        value: policy.to_owned(),
        set: Some(format!("filter_bits_per_key({bits}) of the service")),
        why: "OPTIONS lack its bits a key",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db(text: &str) -> Options {
        Options::from_value(text).expect("options")
    }

    #[test]
    fn one_job_at_a_time_is_too_few() {
        for (few, option, value, set) in [
            ("x=1", "max_background_jobs", "2", "4"),
            ("max_background_jobs=1", "max_background_jobs", "1", "4"),
            (
                "max_background_compactions=1",
                "max_background_compactions",
                "1",
                "3",
            ),
            (
                "max_background_flushes=2",
                "max_background_compactions",
                "-1",
                "3",
            ),
        ] {
            let hint = background_jobs(&db(few)).expect(few);
            let said = (hint.option, hint.value.as_str(), hint.set.as_deref());
            assert_eq!(said, (option, value, Some(set)));
        }
        for enough in ["max_background_jobs=3", "max_background_compactions=2"] {
            assert_eq!(background_jobs(&db(enough)), None, "{enough}");
        }
    }

    #[test]
    fn what_a_hint_says_to_set_gives_no_hint() {
        for unset in [
            "x=1",
            "max_background_compactions=1",
            "max_subcompactions=4",
        ] {
            let both = |db: &Options| background_jobs(db).or_else(|| subcompactions(db));
            let hint = both(&db(unset)).expect(unset);
            let set = hint.set.expect("a value");
            let set = format!("{}={set};max_background_jobs=4", hint.option);
            assert_eq!(both(&db(&set)), None, "{set}");
        }
    }

    #[test]
    fn jobs_come_whole() {
        assert_eq!(subcompactions(&db("x=1")), None);
        assert_eq!(subcompactions(&db("max_subcompactions=1")), None);
        let hint = subcompactions(&db("max_subcompactions=4")).expect("too many");
        assert_eq!((hint.value.as_str(), hint.set.as_deref()), ("4", Some("1")));
    }
}
