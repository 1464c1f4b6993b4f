//! Where randomness starts, and how much of it there is: environment variables.

use std::time::{SystemTime, UNIX_EPOCH};

/// The seed when `ROCKMILL_SEED` is not set: fixed, so that a run that passed passes again.
const DEFAULT_SEED: u64 = 1;

/// The first seed, from `ROCKMILL_SEED`: a number, or `random` for the clock.
///
/// # Panics
///
/// If the variable holds anything else.
#[must_use]
pub fn first_seed() -> u64 {
    match std::env::var("ROCKMILL_SEED") {
        Err(_) => DEFAULT_SEED,
        Ok(text) if text == "random" => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(DEFAULT_SEED, |age| u64::from(age.subsec_nanos())),
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("ROCKMILL_SEED is neither a number nor `random`: {text}")),
    }
}

/// How many cases to run, from `ROCKMILL_CASES`, else `default`.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn cases(default: u64) -> u64 {
    number("ROCKMILL_CASES", default)
}

/// How many cases to run at a time, from `ROCKMILL_AT_ONCE`, else 1.
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
