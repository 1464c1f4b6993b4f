//! Objects in a database's configuration that RocksDB cannot create from their names.

use rockmill_compaction::filter_policy_without_bits;
use rockmill_format::filter::FilterPolicy;
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::{ColumnFamilyOptions, Options, OptionsFile};
use rockmill_format::prefix::PrefixExtractor;

use super::refusal::{FROM_APPLICATION, Refusal};

/// Value that RocksDB writes if there is no object.
pub const NULL: &str = "nullptr";

const MERGE_OPERATOR: &str = "merge_operator";

/// Objects of a column family, and the names that RocksDB has registered for each. With another object, keys would be
/// ordered differently, or entries would be kept or written differently than in the application.
///
/// For comparators, prefix extractors, filter policies and compression managers, RocksDB itself compares names to
/// decide whether files fit, so a name is sufficient here as well. For compaction filters a name proves nothing; the
/// decision makes further checks. Merge operators are stated by the user.
///
/// Every version of RocksDB writes a line for each of these, except for an object without a name.
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
        "compaction_filter",
        &[NULL, "RemoveEmptyValueCompactionFilter"],
    ),
    ("compaction_filter_factory", &[NULL]),
    // The files' magic numbers show the table format.
    (
        "table_factory",
        &["BlockBasedTable", "PlainTable", "CuckooTable"],
    ),
];

/// Like [`ALWAYS_WRITTEN`], but older versions of RocksDB write no line.
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

/// Objects of the database.
const OF_DATABASE: [(&str, &[&str]); 2] = [
    (
        "file_checksum_gen_factory",
        &[NULL, "FileChecksumGenCrc32cFactory"],
    ),
    // A WAL filter may drop entries of the log.
    ("wal_filter", &[NULL]),
];

/// RocksDB's table properties collectors, with the parameters that distinguish them from others with the same name.
const COLLECTORS: [(&str, &[&str]); 2] = [
    (
        "CompactOnDeletionCollector",
        &["window_size", "deletion_trigger", "deletion_ratio"],
    ),
    ("CompactForTieringCollector", &["compaction_trigger_ratio"]),
];

/// Objects that act only when a column family is compacted. Others can be compacted without them.
pub const ONLY_COMPACTING: [&str; 3] = [
    "compaction_filter",
    "compaction_filter_factory",
    "sst_partitioner_factory",
];

/// Whether the database is opened without the object of a column family's option: RocksDB does not know the object, and
/// the column family is not compacted. [`unknown`] names other unknown objects.
pub fn is_left_out(key: &str, value: &str) -> bool {
    let all = ALWAYS_WRITTEN.into_iter().chain(LATER_WRITTEN);
    let known = all.filter(|(option, _)| ONLY_COMPACTING.contains(option));
    let option = Options::from_value(&format!("{key}={value}")).unwrap_or_default();
    known
        .filter(|(option, _)| *option == key)
        .any(|(key, known)| other(&option, key, known).is_some())
}

/// Whether a column family has RocksDB's reverse comparator, with or without timestamps.
pub fn is_reverse(options: &OptionsFile, family: &str) -> bool {
    let family = options.cf(family.as_bytes());
    let named = family.and_then(|family| family.options.str("comparator"));
    let reverse = KeyOrder::ReverseBytewise.comparator();
    named.is_some_and(|name| name.as_bytes().starts_with(reverse))
}

/// Returns the objects without which RocksDB cannot open the database as its application does.
pub fn unknown(options: &OptionsFile) -> Vec<Refusal> {
    let of_database = OF_DATABASE.iter();
    let of_database = of_database.filter_map(|(key, known)| other(&options.db, key, known));
    let mut all: Vec<_> = of_database.collect();
    for family in &options.column_families {
        let found = of_family(family).into_iter();
        all.extend(found.map(|refusal| refusal.of_family(&family.name)));
    }
    all
}

/// Returns the objects without which RocksDB cannot compact a column family as its application does.
pub fn unknown_when_compacting(family: &ColumnFamilyOptions) -> Vec<Refusal> {
    let found = listed(&family.options, |key| ONLY_COMPACTING.contains(&key));
    let found = found.into_iter();
    found
        .map(|refusal| refusal.of_family_alone(&family.name))
        .collect()
}

/// Returns the objects in some of the listed options that RocksDB does not know.
fn listed(options: &Options, acts: impl Fn(&str) -> bool) -> Vec<Refusal> {
    let mut found = Vec::new();
    for (key, known) in ALWAYS_WRITTEN.into_iter().filter(|(key, _)| acts(key)) {
        found.extend(match options.str(key) {
            None => Some(missing(key, "an object without a name")),
            Some(_) => other(options, key, known),
        });
    }
    for (key, known) in LATER_WRITTEN.into_iter().filter(|(key, _)| acts(key)) {
        found.extend(other(options, key, known));
    }
    found
}

fn of_family(family: &ColumnFamilyOptions) -> Vec<Refusal> {
    let options = &family.options;
    let mut found = listed(options, |key| !ONLY_COMPACTING.contains(&key));
    if options.str(MERGE_OPERATOR).is_none() {
        found.push(missing(MERGE_OPERATOR, "an object without a name"));
    }
    found.extend(other_collectors(options));
    let text = |key: &'static str, options: &Options| {
        (key, options.str(key).unwrap_or_default().to_owned())
    };
    let (key, prefix) = text("prefix_extractor", options);
    if PrefixExtractor::parse(&prefix).is_err() && prefix != "rocksdb.Noop" {
        found.push(missing(key, &prefix));
    }
    let (key, policy) = text("filter_policy", &family.table_options);
    if FilterPolicy::parse(&policy).is_err() && filter_policy_without_bits(family).is_none() {
        found.push(missing(key, &policy));
    }
    found.extend(other(
        &family.table_options,
        "user_defined_index_factory",
        &[NULL],
    ));
    found
}

/// Returns the name of a column family's merge operator, if it has one.
pub fn merge_operator(options: &Options) -> Option<String> {
    name(options, MERGE_OPERATOR)
}

/// Returns the name of the object in an option of a column family, if RocksDB registers that name.
pub fn of_rocksdb(options: &Options, key: &str) -> Option<String> {
    let (_, known) = ALWAYS_WRITTEN.iter().find(|(option, _)| *option == key)?;
    name(options, key).filter(|name| known.contains(&name.as_str()))
}

/// Returns the name of the object in an option, if there is one.
fn name(options: &Options, key: &str) -> Option<String> {
    let name = options.object_name(key)?;
    Some(match name.is_empty() {
        true => "an object without a name".to_owned(),
        false => name,
    })
}

/// Returns a refusal if the option has an object that is not in `known`.
fn other(options: &Options, key: &str, known: &[&str]) -> Option<Refusal> {
    let name = name(options, key).filter(|name| !known.contains(&name.as_str()))?;
    Some(missing(key, &name))
}

fn other_collectors(options: &Options) -> Option<Refusal> {
    const KEY: &str = "table_properties_collectors";
    if options.is_null(KEY) {
        return None;
    }
    let Ok(collectors) = options.list(KEY) else {
        return Some(missing(KEY, options.str(KEY).unwrap_or_default()));
    };
    collectors.iter().find_map(|text| {
        let collector = Options::from_value(text).unwrap_or_default();
        let name = collector.id().unwrap_or(text);
        let known = COLLECTORS.iter().find(|(known, _)| *known == name);
        let Some((_, parameters)) = known else {
            return Some(missing(KEY, name));
        };
        let lacking = parameters.iter().find(|key| collector.str(key).is_none())?;
        let what = format!("{KEY} has {name}, and OPTIONS do not give its {lacking}");
        Some(Refusal::data(what, FROM_APPLICATION))
    })
}

fn missing(key: &str, name: &str) -> Refusal {
    let what = format!("{key} is {name}, which only its application has");
    Refusal::data(what, FROM_APPLICATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of the refusals. If an option occurs twice, the first occurrence counts.
    fn checked(db: &str, family: &str, table: &str) -> Vec<String> {
        let text = format!(
            "[DBOptions]\n {db}\n[CFOptions \"default\"]\n {family}\n \
             comparator=leveldb.BytewiseComparator\n merge_operator=nullptr\n \
             compaction_filter=nullptr\n compaction_filter_factory=nullptr\n \
             table_factory=BlockBasedTable\n\
             [TableOptions/BlockBasedTable \"default\"]\n {table}\n"
        );
        let options = OptionsFile::parse(&text).expect("an OPTIONS file");
        let family = options.cf(b"default").expect("it is above");
        let all = unknown(&options).into_iter();
        let all = all.chain(unknown_when_compacting(family));
        all.map(|refusal| refusal.line()).collect()
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
            (
                "table_properties_collectors={{id=CompactOnDeletionCollector;deletion_trigger=50;\
                 deletion_ratio=0.400000;window_size=100;}}",
                "user_defined_index_factory=nullptr",
            ),
        ] {
            let found = checked("wal_filter=nullptr", family, table);
            assert_eq!(found, [""; 0], "{family} {table}");
        }
    }

    #[test]
    fn what_only_the_application_has_is_named() {
        for (db, family, table, said) in [
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
                "x=1",
                "compaction_filter=",
                "x=1",
                "compaction_filter is an object without a name",
            ),
            ("x=1", "table_factory=mine", "x=1", "table_factory is mine"),
            (
                "x=1",
                "table_properties_collectors={id=mine;}:{id=CompactOnDeletionCollector;}",
                "x=1",
                "table_properties_collectors is mine",
            ),
            (
                "x=1",
                "table_properties_collectors={{id=CompactOnDeletionCollector;window_size=1;}}",
                "x=1",
                "OPTIONS do not give its deletion_trigger",
            ),
            (
                "file_checksum_gen_factory=mine",
                "x=1",
                "x=1",
                "file_checksum",
            ),
        ] {
            let found = checked(db, family, table);
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
    }

    #[test]
    fn all_that_only_the_application_has_is_named() {
        let found = checked(
            "wal_filter=mine",
            "compaction_filter=mine\n comparator=mine",
            "user_defined_index_factory=mine",
        );
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
