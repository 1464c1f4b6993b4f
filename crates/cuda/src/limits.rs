//! What the stages on the device do, and what they leave to other backends.

use rockmill_core::{
    Error, ErrorKind, InputTable, KeyRange, Plan, RangesBeneath, Result, key_prefix,
};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::Compressor;
use rockmill_format::filter::FilterFormat;
use rockmill_format::key::TAG_SIZE;

use crate::ffi::{Bound, KeySpan};

/// Lengths of user keys that fit the two words of a key (`types.hpp`).
const KEY_BYTES: std::ops::RangeInclusive<u64> = 4..=16;

/// An error that says that another backend must do the job.
pub fn refused(what: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::Device,
        format!("the GPU backend does not do this yet: {}", what.into()),
    )
}

/// Looks whether the stages can do `plan` over `inputs`; returns the length of all user keys.
pub fn key_bytes(plan: &Plan, inputs: &[InputTable]) -> Result<u32> {
    let table = &plan.table;
    let stored = Compressor::new(&table.compression).is_ok_and(|c| c.is_stored());
    let filter_known = table.filter.is_none_or(|filter| {
        filter.format == FilterFormat::FastLocalBloom
            && filter.whole_key_filtering
            && filter.prefix_extractor.is_none()
    });
    let checks = [
        (stored, "compression"),
        (
            table.checksum == ChecksumType::Xxh3,
            "checksums other than XXH3",
        ),
        (!table.common_prefix, "common prefixes (format_version 8)"),
        (
            filter_known,
            "filters with prefixes or of the legacy format",
        ),
        (
            plan.cutting.grandparents.is_empty(),
            "cutting files at grandparents",
        ),
        (
            !plan.cutting.size_is_upper_bound,
            "target_file_size_is_upper_bound",
        ),
        (!plan.paranoid_hash, "paranoid_file_checks"),
        // Rules that ask for "the snapshot below, or 0" take it for none.
        (
            plan.rules.snapshots.first() != Some(&0),
            "a snapshot with sequence number 0",
        ),
    ];
    if let Some((_, what)) = checks.iter().find(|(done, _)| !done) {
        return Err(refused(*what));
    }
    let mut key_bytes = None;
    for input in inputs {
        let properties = &input.meta.properties;
        if input.meta.footer.guard.checksum != ChecksumType::Xxh3 {
            return Err(refused("inputs with checksums other than XXH3"));
        }
        let entries = properties.num_entries.max(1);
        let mean = (properties.raw_key_size / entries).saturating_sub(TAG_SIZE as u64);
        let whole = (mean + TAG_SIZE as u64).checked_mul(properties.num_entries)
            == Some(properties.raw_key_size);
        if !whole || !KEY_BYTES.contains(&mean) || *key_bytes.get_or_insert(mean) != mean {
            return Err(refused("keys of several lengths, or not of 4 to 16 bytes"));
        }
    }
    Ok(key_bytes.unwrap_or(*KEY_BYTES.end()) as u32)
}

/// A user key of at most 16 bytes as two words.
fn words(user_key: &[u8]) -> (u64, u64) {
    let prefix = key_prefix(user_key);
    ((prefix >> 64) as u64, prefix as u64)
}

/// The bounds of a range.
pub fn bounds(range: &KeyRange) -> Result<(Bound, Bound)> {
    let bound = |key: &Option<Vec<u8>>| match key {
        None => Ok(Bound::default()),
        Some(key) if key.len() as u64 <= *KEY_BYTES.end() => {
            let (hi, lo) = words(key);
            Ok(Bound {
                hi,
                lo,
                len: key.len() as u32,
                present: 1,
            })
        }
        Some(_) => Err(refused("bounds longer than 16 bytes")),
    };
    Ok((bound(&range.begin)?, bound(&range.end)?))
}

/// Files beneath the output: spans, the end of each level among them, and whether anything may lie there.
#[derive(Debug, Default)]
pub struct Beneath {
    pub spans: Vec<KeySpan>,
    pub level_ends: Vec<u32>,
    pub unknown: bool,
}

/// What lies beneath, for keys of `key_bytes`.
pub fn beneath(ranges: &RangesBeneath, key_bytes: u32) -> Result<Beneath> {
    let mut beneath = Beneath::default();
    match ranges {
        RangesBeneath::Nothing => {}
        RangesBeneath::Unknown => beneath.unknown = true,
        RangesBeneath::Files(levels) => {
            for files in levels {
                for (first, last) in files {
                    if first.len() != key_bytes as usize || last.len() != key_bytes as usize {
                        return Err(refused("keys of another length beneath the output"));
                    }
                    let ((first_hi, first_lo), (last_hi, last_lo)) = (words(first), words(last));
                    beneath.spans.push(KeySpan {
                        first_hi,
                        first_lo,
                        last_hi,
                        last_lo,
                    });
                }
                beneath.level_ends.push(beneath.spans.len() as u32);
            }
        }
    }
    Ok(beneath)
}
