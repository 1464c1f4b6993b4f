//! The OPTIONS file and the texts of objects in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::filter::FilterPolicy;
use rockmill_format::options_file::{Options, OptionsFile};
use rockmill_format::prefix::PrefixExtractor;

/// Maximum depth of nested values; the parser itself reads one level in each call.
const MAX_DEPTH: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let Ok(file) = OptionsFile::parse(text) else {
        return;
    };
    read_values(&file.db, MAX_DEPTH);
    for family in &file.column_families {
        read_values(&family.options, MAX_DEPTH);
        read_values(&family.table_options, MAX_DEPTH);
    }
});

/// Reads every value as every type; the parser decides whether it is one.
fn read_values(options: &Options, depth: usize) {
    for (key, value) in options.iter() {
        let _ = options.bool(key, false);
        let _ = options.u64(key, 0);
        let _ = options.i64(key, 0);
        let _ = options.f64(key, 0.0);
        let _ = options.is_null(key);
        let _ = options.list(key);
        let _ = FilterPolicy::parse(value);
        let _ = PrefixExtractor::parse(value);
        if depth > 0
            && let Ok(nested) = options.nested(key)
        {
            read_values(&nested, depth - 1);
        }
    }
}
