//! What would help, though nothing is declined for it.

use rockmill_engine::{Diagnosis, FamilyDiagnosis, filter_policy_without_bits};
use rockmill_format::options_file::Options;
use serde::Serialize;

use crate::output;
use crate::service_args::ServiceArgs;

/// Below this a slice, which is two files, is over before its inputs are opened and its outputs are
/// synced.
const SMALL_FILE_BYTES: u64 = 16 << 20;

/// RocksDB's default of `target_file_size_base`.
const DEFAULT_FILE_BYTES: u64 = 64 << 20;

/// RocksDB's default of `max_background_jobs`.
const DEFAULT_JOBS: i64 = 2;

/// An option that could be better.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// `null` for an option of the database.
    pub column_family: Option<String>,
    pub option: &'static str,
    pub value: String,
    pub change: String,
}

impl Hint {
    fn of_database(option: &'static str, value: impl ToString, change: &str) -> Self {
        Self {
            column_family: None,
            option,
            value: value.to_string(),
            change: change.to_owned(),
        }
    }
}

/// Hints on the database and all its column families. Options that cannot be read give none; they are
/// declined.
pub fn all(diagnosis: &Diagnosis, service: &ServiceArgs) -> Vec<Hint> {
    let db = &diagnosis.options.db;
    let mut hints: Vec<_> = background_jobs(db).into_iter().collect();
    hints.extend(subcompactions(db));
    hints.push(paths());
    if service.write_committed && db.bool("allow_2pc", false) == Ok(true) {
        let change = "build the service with write_committed()";
        hints.push(Hint::of_database("allow_2pc", true, change));
    }
    for family in &diagnosis.families {
        hints.extend(file_size(diagnosis, family));
        hints.extend(filter_bits(diagnosis, family, service));
    }
    hints
}

/// As many compactions as `DBImpl::GetBGJobLimits` has at once.
fn background_jobs(db: &Options) -> Option<Hint> {
    let number = |key, default| db.i64(key, default).ok();
    let jobs = number("max_background_jobs", DEFAULT_JOBS)?;
    let flushes = number("max_background_flushes", -1)?;
    let compactions = number("max_background_compactions", -1)?;
    let at_once = if flushes == -1 && compactions == -1 {
        jobs - (jobs / 4).max(1)
    } else {
        compactions
    };
    (at_once <= 1).then(|| {
        let change = "one job is offered at a time: raise it to 4 or more";
        Hint::of_database("max_background_jobs", jobs, change)
    })
}

fn subcompactions(db: &Options) -> Option<Hint> {
    let parts = db.u64("max_subcompactions", 1).ok()?;
    (parts > 1).then(|| {
        let change =
            "set 1: RocksDB cuts jobs before it offers them, and Rockmill cuts them itself";
        Hint::of_database("max_subcompactions", parts, change)
    })
}

/// What no file tells until it is too late.
fn paths() -> Hint {
    Hint::of_database(
        "db_paths",
        "not in OPTIONS",
        "use no compaction service if db_paths or cf_paths name folders on several file systems",
    )
}

fn file_size(diagnosis: &Diagnosis, family: &FamilyDiagnosis) -> Option<Hint> {
    let options = diagnosis.options.cf(&family.name)?;
    let size = options
        .options
        .u64("target_file_size_base", DEFAULT_FILE_BYTES)
        .ok()?;
    (size < SMALL_FILE_BYTES).then(|| Hint {
        column_family: Some(output::escape(&family.name)),
        option: "target_file_size_base",
        value: size.to_string(),
        change:
            "raise it towards 64 MiB: slices are two files, and small ones take longer to begin \
                 than to do"
                .to_owned(),
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
    let change = match known {
        Some(millibits) => {
            let bits = f64::from(millibits) / 1e3;
            format!(
                "OPTIONS lack its bits a key: build the service with filter_bits_per_key({bits:?})"
            )
        }
        // Declined for it, unless there is no file yet.
        None if family.files > 0 => return None,
        None => {
            "OPTIONS lack its bits a key: build the service with filter_bits_per_key(..)".to_owned()
        }
    };
    Some(Hint {
        column_family: Some(output::escape(&family.name)),
        option: "filter_policy",
        value: policy.to_owned(),
        change,
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
        for few in [
            "x=1",
            "max_background_jobs=2",
            "max_background_compactions=1",
        ] {
            assert!(background_jobs(&db(few)).is_some(), "{few}");
        }
        for enough in ["max_background_jobs=3", "max_background_compactions=2"] {
            assert_eq!(background_jobs(&db(enough)), None, "{enough}");
        }
    }

    #[test]
    fn jobs_come_whole() {
        assert_eq!(subcompactions(&db("x=1")), None);
        assert_eq!(subcompactions(&db("max_subcompactions=1")), None);
        let hint = subcompactions(&db("max_subcompactions=4")).expect("too many");
        assert_eq!(hint.value, "4");
    }
}
