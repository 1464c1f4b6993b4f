//! Seed and number of cases, from environment variables.

use std::time::{SystemTime, UNIX_EPOCH};

/// The seed if `ROCKMILL_SEED` is not set: fixed, so that a passing run is reproducible.
const DEFAULT_SEED: u64 = 1;

/// Returns the first seed, from `ROCKMILL_SEED`: a number, or `random` for the clock.
///
/// # Panics
///
/// If the variable has another value.
#[must_use]
pub fn first_seed() -> u64 {
    match std::env::var("ROCKMILL_SEED") {
        Err(_) => DEFAULT_SEED,
        Ok(text) if text == "random" => from_clock(),
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("ROCKMILL_SEED is neither a number nor `random`: {text}")),
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

/// Returns the number of cases to run, from `ROCKMILL_CASES`, else `default`.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn cases(default: u64) -> u64 {
    rockmill_testkit::machine::cases(default)
}

/// Returns the number of cases to run in parallel, from `ROCKMILL_AT_ONCE`, else 1.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn at_once() -> u64 {
    number("ROCKMILL_AT_ONCE", 1)
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
    }
}
