//! The option `filter_policy` of a column family's block-based table.

use crate::error::{Error, Result};
use crate::object_text::ObjectText;

const MILLI: f64 = 1000.0;
/// With fewer bits per key than this, there is no filter.
const MIN_BITS_PER_KEY: f64 = 0.5;
const MAX_BITS_PER_KEY: f64 = 100.0;
/// Rounds decimals with three digits up to the intended number.
const ROUNDING_NUDGE: f64 = 0.500_001;

/// The configured built-in policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyKind {
    /// `bloomfilter:BITS[:false]`.
    Bloom,
    /// `ribbonfilter:BITS[:LEVEL]`.
    Ribbon {
        /// RocksDB writes Bloom filters at levels before this one; -1 means that flushes get Ribbon
        /// too, and `i32::MAX` that every level gets Bloom.
        bloom_before_level: i32,
    },
    /// `rocksdb.BuiltinBloomFilter`: reads filters and writes none.
    ReadOnly,
}

/// A filter policy by its name in the OPTIONS file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterPolicy {
    /// Its kind.
    pub kind: PolicyKind,
    /// Bloom bits for each key in thousandths (for Ribbon: bits of a Bloom filter of the same quality); 0, or 1000 to
    /// 100,000. With 0 no filter is written, but the policy's name is still in the properties.
    pub millibits_per_key: u32,
}

impl FilterPolicy {
    /// Reads the option's text, plain or as `{id=...;bloom_before_level=...;}`; `nullptr` and the
    /// empty text are `None` (`filter_policy.cc:FilterPolicy::CreateFromString`).
    ///
    /// # Errors
    /// Unsupported for a policy that is not one of RocksDB's own.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let Some(object) = ObjectText::parse(text)? else {
            return Ok(None);
        };
        let mut policy =
            Self::from_id(object.id).ok_or_else(|| object.unsupported("filter policy"))?;
        for &(name, value) in &object.options {
            let level = value.parse::<i32>();
            match (&mut policy.kind, name, level) {
                (PolicyKind::Ribbon { bloom_before_level }, "bloom_before_level", Ok(level)) => {
                    *bloom_before_level = level;
                }
                _ => {
                    let what = format!("filter policy option {name}={value}");
                    return Err(Error::unsupported(0, what));
                }
            }
        }
        Ok(Some(policy))
    }

    fn from_id(id: &str) -> Option<Self> {
        let mut parts = id.split(':');
        let name = parts.next()?;
        let (bits, last) = (parts.next(), parts.next());
        if parts.next().is_some() {
            return None;
        }
        let kind = match (name, bits, last) {
            ("rocksdb.BuiltinBloomFilter", None, None) => PolicyKind::ReadOnly,
            // The last part once selected the block-based filter, which does not exist any more.
            ("bloomfilter" | "rocksdb.BloomFilter", Some(_), None | Some("false" | "true")) => {
                PolicyKind::Bloom
            }
            ("ribbonfilter" | "rocksdb.RibbonFilter", Some(_), level) => PolicyKind::Ribbon {
                bloom_before_level: level.map_or(Some(0), |level| level.parse().ok())?,
            },
            _ => return None,
        };
        let millibits_per_key = bits.map_or(Some(0), parse_millibits)?;
        Some(Self {
            kind,
            millibits_per_key,
        })
    }

    /// The text of the property `rocksdb.filter.policy` (`FilterPolicy::Name`, without the
    /// numbers).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            PolicyKind::Bloom => "bloomfilter",
            PolicyKind::Ribbon { .. } => "ribbonfilter",
            PolicyKind::ReadOnly => "rocksdb.BuiltinBloomFilter",
        }
    }
}

/// Bits per key as decimal text to thousandths (`filter_policy.cc:BloomLikeFilterPolicy::BloomLikeFilterPolicy`);
/// `None` if the text is not digits with at most one sign and one point
/// (`utilities/object_registry.cc:MatchesDecimal`).
fn parse_millibits(text: &str) -> Option<u32> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if unsigned
        .bytes()
        .any(|byte| !byte.is_ascii_digit() && byte != b'.')
    {
        return None;
    }
    let bits = text.parse::<f64>().ok()?;
    let sanitized = if bits < MIN_BITS_PER_KEY {
        0.0
    } else {
        bits.clamp(1.0, MAX_BITS_PER_KEY)
    };
    Some((sanitized * MILLI + ROUNDING_NUDGE) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn parsed(text: &str) -> FilterPolicy {
        FilterPolicy::parse(text).unwrap().unwrap()
    }

    #[test]
    fn bloom_policies_are_read_in_every_form() {
        for text in [
            "bloomfilter:10:false",
            "bloomfilter:10",
            "bloomfilter:10.0:true",
            "rocksdb.BloomFilter:10:false",
            "{id=bloomfilter:10:false;}",
        ] {
            let policy = parsed(text);
            assert_eq!(policy.kind, PolicyKind::Bloom, "{text}");
            assert_eq!(policy.millibits_per_key, 10_000, "{text}");
            assert_eq!(policy.name(), "bloomfilter");
        }
    }

    #[test]
    fn ribbon_policies_are_read_in_every_form() {
        for (text, level) in [
            ("ribbonfilter:10", 0),
            ("ribbonfilter:10:2", 2),
            ("rocksdb.RibbonFilter:10:-1", -1),
            (
                "{id=ribbonfilter:10:2;bloom_before_level=2147483647;}",
                i32::MAX,
            ),
        ] {
            let policy = parsed(text);
            assert_eq!(
                policy.kind,
                PolicyKind::Ribbon {
                    bloom_before_level: level
                },
                "{text}"
            );
            assert_eq!(policy.millibits_per_key, 10_000, "{text}");
            assert_eq!(policy.name(), "ribbonfilter");
        }
    }

    #[test]
    fn bits_are_sanitized_as_rocksdb_does() {
        for (text, millibits) in [
            ("0", 0),
            ("0.499", 0),
            ("-3", 0),
            ("0.5", 1000),
            ("0.999", 1000),
            ("9.9", 9900),
            ("15.5", 15_500),
            ("2.0805", 2081),
            ("2.0804", 2080),
            ("99.9999", 100_000),
            ("100", 100_000),
            ("1000000", 100_000),
        ] {
            let policy = parsed(&format!("bloomfilter:{text}:false"));
            assert_eq!(policy.millibits_per_key, millibits, "{text}");
        }
    }

    #[test]
    fn absent_and_read_only_policies_write_nothing() {
        assert_eq!(FilterPolicy::parse("nullptr"), Ok(None));
        assert_eq!(FilterPolicy::parse(""), Ok(None));
        let policy = parsed("rocksdb.BuiltinBloomFilter");
        assert_eq!(
            (policy.kind, policy.millibits_per_key),
            (PolicyKind::ReadOnly, 0)
        );
    }

    #[test]
    fn foreign_policies_are_unsupported() {
        for text in [
            "bloomfilter",
            "bloomfilter:",
            "bloomfilter:.",
            "bloomfilter:ten",
            "bloomfilter:inf",
            "bloomfilter:1e3",
            "bloomfilter:10:maybe",
            "bloomfilter:10:false:1",
            "ribbonfilter:10:x",
            "{id=bloomfilter:10;bloom_before_level=1;}",
            "{id=ribbonfilter:10;bloom_before_level=x;}",
            "{bloom_before_level=1;}",
            "rocksdb.internal.LegacyBloomFilter:10",
            "MyFilter",
        ] {
            let error = FilterPolicy::parse(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "{text}");
        }
    }

    proptest! {
        #[test]
        fn three_decimals_are_kept(millibits in 1000u32..=100_000) {
            let text = format!("bloomfilter:{}.{:03}:false", millibits / 1000, millibits % 1000);
            prop_assert_eq!(parsed(&text).millibits_per_key, millibits);
        }

        #[test]
        fn parsing_is_total(text in "\\PC{0,30}|(bloom|ribbon)filter:[-.0-9:]{0,12}|[{}=;:a-z]{0,20}") {
            if let Ok(Some(policy)) = FilterPolicy::parse(&text) {
                prop_assert!(policy.millibits_per_key <= 100_000);
            }
        }
    }
}
