//! Number of levels of a column family.

use rockmill_format::options_file::Options;
use rockmill_format::{Error, Result};

/// More levels than any database uses. The limit bounds loops over levels.
const MAX_LEVELS: u64 = 256;

/// RocksDB's default.
const LEVELS: u64 = 7;

/// Returns `num_levels` of a column family.
///
/// # Errors
/// Corruption if it is malformed, Unsupported if it exceeds `MAX_LEVELS`.
pub fn num_levels(options: &Options) -> Result<u32> {
    match options.u64("num_levels", LEVELS)? {
        levels @ 0..=MAX_LEVELS => Ok(levels as u32),
        levels => {
            let what =
                format!("num_levels is {levels}, and more than {MAX_LEVELS} are not supported");
            Err(Error::unsupported(0_u64, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_no_column_family_has_are_refused() {
        let levels = |text| num_levels(&Options::from_value(text).expect("options"));
        assert_eq!(levels("block_size=1"), Ok(7));
        assert_eq!(levels("num_levels=256"), Ok(256));
        for text in ["num_levels=257", "num_levels=18446744073709551615"] {
            let why = levels(text).expect_err(text).to_string();
            assert!(why.contains("num_levels is"), "{why}");
        }
    }
}
