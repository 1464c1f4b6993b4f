//! Seed and number of cases, from environment variables.

use std::time::{SystemTime, UNIX_EPOCH};

use rockmill_testkit::machine;
pub use rockmill_testkit::machine::cases;

/// The seed if `ROCKMILL_SEED` is not set: fixed, so that a passing run is reproducible.
const DEFAULT_SEED: u64 = 1;

/// Returns the first seed, from `ROCKMILL_SEED`: a number, or `random` for the clock.
///
/// # Panics
///
/// If the variable has another value.
#[must_use]
pub fn first_seed() -> u64 {
    match std::env::var("ROCKMILL_SEED").as_deref() {
        Ok("random") => from_clock(),
        _ => machine::number("ROCKMILL_SEED", DEFAULT_SEED),
    }
}

/// Returns the seeds of the cases to run: `ROCKMILL_CASES` of them, else `default`. With `ROCKMILL_SEED` they are
/// consecutive. Without it half of them are fixed, and the others come from the clock.
///
/// # Panics
///
/// If one of the variables is invalid.
#[must_use]
pub fn seeds(default: u64) -> Vec<u64> {
    let (first, cases) = (first_seed(), cases(default));
    if std::env::var_os("ROCKMILL_SEED").is_some() {
        return (first..first + cases).collect();
    }
    let fixed = cases.div_ceil(2);
    let drawn = from_clock();
    (first..first + fixed)
        .chain(drawn..drawn + (cases - fixed))
        .collect()
}

fn from_clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(DEFAULT_SEED, |age| u64::from(age.subsec_nanos()))
}

/// Returns the number of cases to run in parallel, from `ROCKMILL_AT_ONCE`, else 1.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn at_once() -> u64 {
    machine::number("ROCKMILL_AT_ONCE", 1)
}
