//! The keys in filters, in the device's form.

use rockmill_format::filter::{FilterFormat, FilterOptions};
use rockmill_format::prefix::PrefixExtractor;

use crate::driver::ffi::{
    FILTER_FAST_LOCAL, FILTER_LEGACY, FilterRules, PREFIX_CAPPED, PREFIX_FIXED, PREFIX_NONE,
};

/// The keys in filters.
pub fn filter_rules(filter: Option<FilterOptions>) -> FilterRules {
    let Some(filter) = filter.filter(|filter| filter.millibits_per_key > 0) else {
        return FilterRules::default();
    };
    let (prefix_kind, prefix_len) = match filter.prefix_extractor {
        None => (PREFIX_NONE, 0),
        Some(PrefixExtractor::Fixed(len)) => (PREFIX_FIXED, len),
        Some(PrefixExtractor::Capped(len)) => (PREFIX_CAPPED, len),
    };
    FilterRules {
        format: match filter.format {
            FilterFormat::FastLocalBloom => FILTER_FAST_LOCAL,
            FilterFormat::Legacy => FILTER_LEGACY,
        },
        whole_keys: u32::from(filter.whole_key_filtering),
        prefix_kind,
        unused: 0,
        prefix_len: prefix_len as u64,
    }
}

/// Whether some keys may have no prefix.
pub fn may_lack_prefix(rules: &FilterRules) -> bool {
    rules.prefix_kind == PREFIX_FIXED
}
