//! Objects that a database was configured with and that RocksDB cannot make from their names.

use rockmill_engine::filter_policy_without_bits;
use rockmill_format::filter::FilterPolicy;
use rockmill_format::options_file::{ColumnFamilyOptions, Options, OptionsFile};
use rockmill_format::prefix::PrefixExtractor;

use crate::outcome::Failure;
use crate::output;

/// What RocksDB writes for no object.
const NULL: &str = "nullptr";

/// Objects of a column family and those that RocksDB registers under their names. Without the others
/// keys would be in another order, or entries would be kept or written in another way than the
/// application has them.
///
/// Every RocksDB writes a line for these, but for an object without a name.
const ALWAYS_WRITTEN: [(&str, &[&str]); 4] = [
    (
        "comparator",
        &[
            "leveldb.BytewiseComparator",
            "leveldb.BytewiseComparator.u64ts",
            "rocksdb.ReverseBytewiseComparator",
            "rocksdb.ReverseBytewiseComparator.u64ts",
        ],
    ),
    (
        "merge_operator",
        &[
            NULL,
            "BytesXOR",
            "MaxOperator",
            "MergeSortOperator",
            "PutOperator",
            "StringAppendOperator",
            "StringAppendTESTOperator",
            "UInt64AddOperator",
        ],
    ),
    (
        "compaction_filter",
        &[NULL, "RemoveEmptyValueCompactionFilter"],
    ),
    ("compaction_filter_factory", &[NULL]),
];

/// As above, but older RocksDB write no line.
const LATER_WRITTEN: [(&str, &[&str]); 2] = [
    (
        "sst_partitioner_factory",
        &[NULL, "SstPartitionerFixedPrefixFactory"],
    ),
    (
        "compression_manager",
        &[
            NULL,
            "BuiltinCompressionManager",
            "BuiltinCompressionManagerV2",
        ],
    ),
];

/// Looks whether RocksDB alone can open the database as its application does.
///
/// # Errors
/// Data if an object is missing.
pub fn require_known(options: &OptionsFile) -> Result<(), Failure> {
    let checksum = &[NULL, "FileChecksumGenCrc32cFactory"];
    if let Some(name) = unknown(&options.db, "file_checksum_gen_factory", checksum) {
        return Err(missing(None, "file_checksum_gen_factory", &name));
    }
    options.column_families.iter().try_for_each(of_family)
}

fn of_family(family: &ColumnFamilyOptions) -> Result<(), Failure> {
    let missing = |key, name: &str| Err(missing(Some(&family.name), key, name));
    for (key, known) in ALWAYS_WRITTEN {
        if family.options.str(key).is_none() {
            return missing(key, "an object without a name");
        }
        if let Some(name) = unknown(&family.options, key, known) {
            return missing(key, &name);
        }
    }
    for (key, known) in LATER_WRITTEN {
        if let Some(name) = unknown(&family.options, key, known) {
            return missing(key, &name);
        }
    }
    let text = |key: &'static str, options: &Options| {
        (key, options.str(key).unwrap_or_default().to_owned())
    };
    let (key, collectors) = text("table_properties_collectors", &family.options);
    if !family.options.is_null(key) {
        return missing(key, &collectors);
    }
    let (key, prefix) = text("prefix_extractor", &family.options);
    if PrefixExtractor::parse(&prefix).is_err() && prefix != "rocksdb.Noop" {
        return missing(key, &prefix);
    }
    let (key, policy) = text("filter_policy", &family.table_options);
    if FilterPolicy::parse(&policy).is_err() && filter_policy_without_bits(family).is_none() {
        return missing(key, &policy);
    }
    Ok(())
}

/// The name of the object that the option has, if it is not one of those known.
fn unknown(options: &Options, key: &str, known: &[&str]) -> Option<String> {
    let text = options.str(key)?;
    let object = options.nested(key).ok();
    let name = object.as_ref().and_then(|object| object.id());
    let name = name.unwrap_or(if options.is_null(key) { NULL } else { text });
    (!known.contains(&name)).then(|| name.to_owned())
}

fn missing(family: Option<&[u8]>, key: &str, name: &str) -> Failure {
    let family = family.map(|name| format!("column family {}: ", output::escape(name)));
    Failure::Data(format!(
        "{}{key} is {name}, which only the application has: compact the database from there",
        family.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of two statements of an option counts.
    fn checked(db: &str, family: &str, table: &str) -> Result<(), String> {
        let text = format!(
            "[DBOptions]\n {db}\n[CFOptions \"default\"]\n {family}\n \
             comparator=leveldb.BytewiseComparator\n merge_operator=nullptr\n \
             compaction_filter=nullptr\n compaction_filter_factory=nullptr\n\
             [TableOptions/BlockBasedTable \"default\"]\n {table}\n"
        );
        let options = OptionsFile::parse(&text).expect("an OPTIONS file");
        require_known(&options).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_rocksdb_makes_itself_is_known() {
        for (family, table) in [
            ("merge_operator=nullptr", "filter_policy=nullptr"),
            (
                "merge_operator={id=StringAppendOperator;delimiter=,;}",
                "filter_policy=bloomfilter:10:false",
            ),
            (
                "prefix_extractor=rocksdb.FixedPrefix.4",
                "filter_policy=bloomfilter",
            ),
            (
                "prefix_extractor=rocksdb.Noop",
                "filter_policy=ribbonfilter",
            ),
        ] {
            assert_eq!(checked("x=1", family, table), Ok(()), "{family} {table}");
        }
    }

    #[test]
    fn what_only_the_application_has_is_named() {
        for (db, family, table, said) in [
            (
                "x=1",
                "merge_operator=mine",
                "x=1",
                "merge_operator is mine",
            ),
            (
                "x=1",
                "merge_operator={id=mine;}",
                "x=1",
                "merge_operator is mine",
            ),
            (
                "x=1",
                "compaction_filter=ttl",
                "x=1",
                "compaction_filter is ttl",
            ),
            (
                "x=1",
                "prefix_extractor=mine",
                "x=1",
                "prefix_extractor is mine",
            ),
            ("x=1", "x=1", "filter_policy=mine", "filter_policy is mine"),
            (
                "file_checksum_gen_factory=mine",
                "x=1",
                "x=1",
                "file_checksum",
            ),
        ] {
            let error = checked(db, family, table).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
