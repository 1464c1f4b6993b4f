//! Checks filters for false negatives: a filter must contain everything that RocksDB may ask it for.
//!
//! A filter contains every user key, if whole keys are filtered, and the prefix of every key in the extractor's domain,
//! if there is an extractor (`full_filter_block.cc:FullFilterBlockBuilder::Add`).

use rockmill_core::{Error, FilterPart, InputTable, Result, filter_parts, parts_of};
use rockmill_format::filter::FilterReader;
use rockmill_format::key::KeyOrder;
use rockmill_format::prefix::PrefixExtractor;
use rockmill_format::properties::TableProperties;
use rockmill_format::table::{key_order, names};
use rockmill_terminal::output;

/// Maximum characters of a key in errors.
const KEY_COLUMNS: usize = 60;

/// Required contents of a file's filter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    whole_keys: bool,
    prefixes: Option<PrefixExtractor>,
    /// Name of an extractor that is set but not known here.
    unknown_extractor: Option<String>,
    /// Order of the keys, if it is known.
    order: Option<KeyOrder>,
}

impl Expected {
    /// Readers treat a missing property as true (`block_based_table_reader.cc:IsFeatureSupported`).
    fn new(properties: &TableProperties) -> Self {
        let text = String::from_utf8_lossy(&properties.prefix_extractor_name);
        let extractor = match properties.prefix_filtering {
            Some(false) => Ok(None),
            _ => PrefixExtractor::parse(&text),
        };
        Self {
            whole_keys: properties.whole_key_filtering != Some(false),
            unknown_extractor: extractor
                .is_err()
                .then(|| output::escape(&properties.prefix_extractor_name)),
            prefixes: extractor.unwrap_or(None),
            order: key_order(&properties.comparator_name),
        }
    }
}

/// Asks a file's filter for all keys of the file.
///
/// Holds the whole filter in memory.
#[derive(Debug)]
pub struct FilterCheck {
    /// Partitions in key order; empty if the file has no filter of a known kind.
    parts: Vec<FilterPart>,
    /// Name of a filter of an unknown kind.
    unknown_filter: Option<String>,
    expected: Expected,
    keys: u64,
    prefixes: u64,
    last_key: Vec<u8>,
}

impl FilterCheck {
    /// Reads and verifies all filter blocks of a file. With an unknown comparator the filter is not queried: keys may
    /// be in any partition, and may have timestamps that the filter does not contain.
    ///
    /// # Errors
    /// Storage if reading fails; Corruption or Declined if a block is damaged or not understood.
    pub fn load(table: &InputTable) -> Result<Self> {
        let metaindex = &table.meta.metaindex;
        let mut check = Self {
            parts: Vec::new(),
            unknown_filter: None,
            expected: Expected::new(&table.meta.properties),
            keys: 0,
            prefixes: 0,
            last_key: Vec::new(),
        };
        check.parts = filter_parts(table)?;
        for part in &check.parts {
            FilterReader::parse(&part.payload)
                .map_err(|e| Error::format(table.file.name(), e.at(part.offset)))?;
        }
        let known = [names::FULL_FILTER, names::PARTITIONED_FILTER];
        if !known.iter().any(|&name| metaindex.contains_key(name)) {
            let foreign = metaindex.keys().find(|name| {
                name.starts_with(b"fullfilter.") || name.starts_with(b"partitionedfilter.")
            });
            check.unknown_filter = foreign.map(|name| output::escape(name));
        }
        Ok(check)
    }

    /// Checks that the filter answers "maybe" for a user key and its prefix. Keys must come in order.
    ///
    /// # Errors
    /// Corruption in the file `name` if it answers "no".
    pub fn check(&mut self, name: &str, user_key: &[u8]) -> Result<()> {
        let is_known = self.keys > 0 && self.last_key == user_key;
        let Some(order) = self
            .expected
            .order
            .filter(|_| !is_known && !self.parts.is_empty())
        else {
            return Ok(());
        };
        let extractor = self.expected.prefixes;
        let prefix = extractor.and_then(|extractor| extractor.transform(user_key));
        for part in &self.parts[parts_of(&self.parts, order, user_key)] {
            let filter = FilterReader::parse(&part.payload)
                .map_err(|e| Error::format(name, e.at(part.offset)))?;
            let missing = |what: &str, bytes: &[u8]| {
                let shown = output::escape_short(bytes, KEY_COLUMNS);
                let what = format!("false negative in the filter: {what} {shown:?} is not in it");
                Error::corruption(name, part.offset, what)
            };
            if self.expected.whole_keys && !filter.may_contain(user_key) {
                return Err(missing("key", user_key));
            }
            if let Some(prefix) = prefix
                && !filter.may_contain(prefix)
            {
                return Err(missing("prefix", prefix));
            }
        }
        self.keys += 1;
        self.prefixes += u64::from(prefix.is_some());
        self.last_key.clear();
        self.last_key.extend_from_slice(user_key);
        Ok(())
    }

    /// Returns the parts that were not checked, and why.
    pub fn not_checked(&self) -> Option<String> {
        let (what, why) = match (&self.unknown_filter, &self.expected.unknown_extractor) {
            (Some(name), _) => ("the contents of the filter", format!("filter {name}")),
            (None, Some(name)) if !self.parts.is_empty() => {
                let why = format!("prefix extractor {name}");
                ("the prefixes in the filter", why)
            }
            _ => return None,
        };
        Some(format!("{what}, because {why} is not known"))
    }

    /// Describes in a few words what was checked.
    pub fn summary(&self) -> String {
        if self.unknown_filter.is_some() {
            return "not known".to_owned();
        }
        let Some(part) = self.parts.first() else {
            return "none".to_owned();
        };
        let kind = FilterReader::parse(&part.payload).map_or_else(
            |_| "unknown".to_owned(),
            |filter| format!("{:?}", filter.kind()),
        );
        let mut asked = Vec::new();
        if self.expected.whole_keys {
            asked.push(output::count(self.keys as usize, "key", "keys"));
        }
        if self.expected.prefixes.is_some() {
            let prefixes = self.prefixes as usize;
            asked.push(output::count(prefixes, "prefix", "prefixes"));
        }
        let parts = match self.parts.len() {
            1 => String::new(),
            parts => format!(" in {parts} parts"),
        };
        if self.expected.order.is_none() {
            asked.clear();
        }
        let asked = match asked.is_empty() {
            true => "not asked".to_owned(),
            false => asked.join(", "),
        };
        format!("{kind}{parts}: {asked}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_say_what_is_expected() {
        let properties = |name: &[u8], prefix_filtering| TableProperties {
            prefix_extractor_name: name.to_vec(),
            prefix_filtering,
            whole_key_filtering: Some(false),
            ..TableProperties::default()
        };
        let fixed = Expected::new(&properties(b"rocksdb.FixedPrefix.4", Some(true)));
        assert_eq!(fixed.prefixes, Some(PrefixExtractor::Fixed(4)));
        assert!(!fixed.whole_keys);
        let missing = Expected::new(&TableProperties {
            prefix_extractor_name: b"rocksdb.CappedPrefix.3".to_vec(),
            ..TableProperties::default()
        });
        assert_eq!(missing.prefixes, Some(PrefixExtractor::Capped(3)));
        assert!(missing.whole_keys);
        let off = Expected::new(&properties(b"rocksdb.FixedPrefix.4", Some(false)));
        assert_eq!(off.prefixes, None);
        let foreign = Expected::new(&properties(b"rocksdb.FixedPrefix", Some(true)));
        assert_eq!(foreign.prefixes, None);
        assert_eq!(
            foreign.unknown_extractor.as_deref(),
            Some("rocksdb.FixedPrefix")
        );
    }
}
