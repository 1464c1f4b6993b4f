//! Checks of input files before their data is read.
//!
//! A job is checked when RocksDB schedules it, and again when its inputs are open, because a recorded job is never
//! scheduled. If RocksDB has to wait for a job before it is declined, it lists the whole tree in its LOG.

use rockmill_core::{DeclineReason, Error, Hints, Merging, Result};
use rockmill_format::compression::CompressionType;
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::Options;
use rockmill_format::table::{TableMeta, names};

use rockmill_snapshot::Findings;

/// First format version whose property `rocksdb.compression` names the manager and all types.
const FIRST_MANAGER_VERSION: u32 = 7;

/// Finds contents of an input, by its properties, that Rockmill does not support.
///
/// `comparator` is the name of the column family's comparator.
pub fn check(
    file: &str,
    meta: &TableMeta,
    comparator: &[u8],
    merges: &Merges,
    found: &mut Findings,
) {
    let (properties, metaindex) = (&meta.properties, &meta.metaindex);
    let rules_out = [
        (
            // Very old files do not name theirs, which is the first one.
            properties.comparator_name != comparator
                && !(properties.comparator_name.is_empty()
                    && comparator == KeyOrder::Bytewise.comparator()),
            DeclineReason::Comparator,
            "it has another comparator",
        ),
        (
            properties.embedded_blob_stats.is_some(),
            DeclineReason::BlobFiles,
            "it has blobs",
        ),
        (
            meta.footer.guard.is_legacy,
            DeclineReason::FormatVersion,
            "it has format_version 0 or 1",
        ),
        (
            !properties.seqno_to_time_mapping.is_empty(),
            DeclineReason::Tiering,
            "it has the times of sequence numbers",
        ),
        // RocksDB 10.5 writes such indexes but does not name their factory in OPTIONS. It opens no file without one.
        (
            metaindex
                .keys()
                .any(|name| name.starts_with(names::USER_DEFINED_INDEX)),
            DeclineReason::UserDefinedIndex,
            "it has a user-defined index",
        ),
        (
            properties.user_defined_timestamps_persisted == 0,
            DeclineReason::UserTimestamps,
            "it lacks the timestamps of its keys",
        ),
    ];
    if let (1.., Err(why)) = (properties.num_merge_operands, merges) {
        let error = Error::declined(DeclineReason::MergeOperands, why.clone());
        found.note(Err(error.in_file(file)));
    }
    for (_, reason, what) in rules_out.into_iter().filter(|(applies, ..)| *applies) {
        let error = Error::declined(reason, what);
        found.note(Err(error.in_file(file)));
    }
    found.note(check_compression(file, meta));
}

/// The operator for merge operands, or the reason to decline them.
pub type Merges = std::result::Result<Merging, String>;

/// Finds what merge operands are merged with: the operator that the user states, unless the column family's options
/// contradict it. Without one, `otherwise` says why operands are declined.
pub fn merges(hints: &Hints, family: &Options, otherwise: &str) -> Merges {
    let stated = hints.merge_operator.as_ref();
    let merging = stated.and_then(|operator| Some((operator, operator.merging()?)));
    let (operator, merging) = merging.ok_or(otherwise)?;
    match operator.contradiction(family, hints.merge_operator_of_family) {
        Some(what) => Err(what),
        None => Ok(merging),
    }
}

fn check_compression(file: &str, meta: &TableMeta) -> Result<()> {
    let text = String::from_utf8_lossy(&meta.properties.compression_name);
    let declined = |reason| {
        let what = format!("compression property {text}");
        Err(Error::declined(reason, what).in_file(file))
    };
    if meta.footer.format_version < FIRST_MANAGER_VERSION {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rockmill_core::{CancelToken, ErrorKind, InputTable};

    use super::*;
    use crate::made::{Inputs, Workload};

    #[test]
    fn operands_are_merged_unless_options_contradict_the_stated_operator() {
        let found = |options: &str, merge_operator_of_family| {
            let hints = Hints {
                merge_operator: Some("uint64add".parse().expect("an operator")),
                merge_operator_of_family,
                ..Hints::default()
            };
            let options = format!("a=1;merge_operator={options}");
            merges(&hints, &Options::from_value(&options).expect("options"), "")
        };
        let merging = Ok(Merging::UInt64Add);
        assert_eq!(found("{id=UInt64AddOperator;}", false), merging);
        assert_eq!(found("MyCounter", true), merging);
        for (options, of_family, named) in [
            ("MyCounter", false, "MyCounter"),
            ("{id=MaxOperator;}", true, "MaxOperator"),
            ("nullptr", true, "none"),
        ] {
            let why = found(options, of_family).expect_err("OPTIONS say something else");
            assert!(why.contains("uint64add") && why.contains(named), "{why}");
        }
    }

    #[test]
    fn a_file_with_a_user_defined_index_is_left_to_rocksdb() {
        let dir = tempfile::tempdir().expect("a folder");
        let workload = Workload {
            key_bytes: 16,
            value_bytes: 16,
            runs: 1,
            versions: 1,
            compression: CompressionType::None,
            raw_bytes: 10_000,
        };
        let made = Inputs::new(&workload, dir.path(), "made", &CancelToken::new());
        let mut table = made.expect("there is room").tables()[0].clone();
        let found = |table: &InputTable| {
            let mut found = Findings::default();
            check(
                table.file.name(),
                &table.meta,
                KeyOrder::Bytewise.comparator(),
                &merges(&Hints::default(), &Options::default(), ""),
                &mut found,
            );
            let kinds = found.into_vec().into_iter().map(|error| error.kind);
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(found(&table), []);
        let meta = Arc::make_mut(&mut table.meta);
        let index = [names::USER_DEFINED_INDEX, b"mine"].concat();
        meta.metaindex.insert(index, meta.index_handle);
        let expected = ErrorKind::Declined(DeclineReason::UserDefinedIndex);
        assert_eq!(found(&table), [expected]);
    }
}
