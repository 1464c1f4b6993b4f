//! The order of keys of a column family.

use rockmill_core::{DeclineReason, Hints, Result, TIMESTAMP_SUFFIX};
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::Options;

use super::require_object;

/// The option that names the comparator.
pub const COMPARATOR: &str = "comparator";

/// The order of keys in a column family with these options: that of RocksDB's comparator which they name, or the one that the
/// user states for this name.
///
/// # Errors
/// Declined if it is not known.
pub fn order(hints: &Hints, cf: &Options, written_by: [u32; 3]) -> Result<KeyOrder> {
    let named = cf.str(COMPARATOR);
    let known = named.and_then(|name| {
        KeyOrder::from_comparator(name.as_bytes()).or_else(|| hints.comparators.order(name))
    });
    if let Some(order) = known {
        return Ok(order);
    }
    let reason = match named.is_some_and(|name| name.ends_with(TIMESTAMP_SUFFIX)) {
        true => DeclineReason::UserTimestamps,
        false => DeclineReason::Comparator,
    };
    require_object(cf, COMPARATOR, &[], written_by, reason).map(|()| KeyOrder::Bytewise)
}
