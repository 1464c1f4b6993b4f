//! Checks of input files before their data is read.

use rockmill_core::{DeclineReason, Error, InputTable, Result};
use rockmill_format::compression::CompressionType;
use rockmill_format::table::names;

use rockmill_snapshot::Findings;

/// First format version whose property `rocksdb.compression` names the manager and all types.
const FIRST_MANAGER_VERSION: u32 = 7;

/// Finds contents of an input, named in its properties, that Rockmill does not support.
pub fn check(table: &InputTable, found: &mut Findings) {
    let properties = &table.meta.properties;
    let is = |bytes: &[u8], fine: &[&str]| fine.iter().any(|f| f.as_bytes() == bytes);
    let rules_out = [
        (
            !is(
                &properties.comparator_name,
                &["", "leveldb.BytewiseComparator"],
            ),
            DeclineReason::Comparator,
        ),
        (
            properties.num_merge_operands > 0,
            DeclineReason::MergeOperands,
        ),
        (
            properties.num_range_deletions > 0
                || table.meta.metaindex.contains_key(names::RANGE_DELETIONS),
            DeclineReason::RangeTombstones,
        ),
        (
            properties.external_sst_file_version.is_some(),
            DeclineReason::GlobalSequenceNumber,
        ),
        (
            properties.embedded_blob_stats.is_some(),
            DeclineReason::BlobFiles,
        ),
        (
            !properties.seqno_to_time_mapping.is_empty(),
            DeclineReason::Tiering,
        ),
        (
            properties.user_defined_timestamps_persisted == 0,
            DeclineReason::UserTimestamps,
        ),
    ];
    for (_, reason) in rules_out.into_iter().filter(|(applies, _)| *applies) {
        let error = Error::declined(reason, "the properties say so");
        found.note(Err(error.in_file(table.file.name())));
    }
    found.note(check_compression(table));
}

fn check_compression(table: &InputTable) -> Result<()> {
    let text = String::from_utf8_lossy(&table.meta.properties.compression_name);
    let declined = |reason| {
        let what = format!("compression property {text}");
        Err(Error::declined(reason, what).in_file(table.file.name()))
    };
    if table.meta.footer.format_version < FIRST_MANAGER_VERSION {
        return match text.as_ref() {
            "BZip2" | "Xpress" => declined(DeclineReason::Compression),
            _ => Ok(()),
        };
    }
    let mut parts = text.split(';');
    if !matches!(parts.next(), Some("" | "BuiltinV2")) {
        return declined(DeclineReason::CompressionManager);
    }
    let types = parts.next().unwrap_or_default().as_bytes();
    let readable = types.chunks(2).all(|pair| {
        let code = std::str::from_utf8(pair).ok();
        code.and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .and_then(CompressionType::from_code)
            .is_some()
    });
    if readable {
        Ok(())
    } else {
        declined(DeclineReason::Compression)
    }
}
