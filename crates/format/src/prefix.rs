//! RocksDB's built-in prefix extractors (`util/slice.cc`), and those of an application.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::object_text::ObjectText;

const FIXED_NAME: &str = "rocksdb.FixedPrefix";
const CAPPED_NAME: &str = "rocksdb.CappedPrefix";

/// A function from user key to prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixExtractor {
    /// The first N bytes; shorter keys are outside the domain and have no prefix.
    Fixed(usize),
    /// The first N bytes, or the whole key if it is shorter; every key is in the domain.
    Capped(usize),
}

impl PrefixExtractor {
    /// Reads the option `prefix_extractor` of an OPTIONS file, or the property
    /// `rocksdb.prefix.extractor.name`.
    ///
    /// Accepts `rocksdb.FixedPrefix.N` and `fixed:N`, `rocksdb.CappedPrefix.N` and `capped:N`, each
    /// plain or as `{id=...;}`; `nullptr` and the empty text are `None`.
    ///
    /// # Errors
    /// Unsupported for any other extractor, also for a built-in name without its length.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let Some(object) = ObjectText::parse(text)? else {
            return Ok(None);
        };
        let length_after = |name: &str, separator: char| -> Option<usize> {
            let digits = object.id.strip_prefix(name)?.strip_prefix(separator)?;
            if digits.bytes().all(|byte| byte.is_ascii_digit()) {
                digits.parse().ok()
            } else {
                None
            }
        };
        let extractor = length_after(FIXED_NAME, '.')
            .or_else(|| length_after("fixed", ':'))
            .map(Self::Fixed)
            .or_else(|| {
                length_after(CAPPED_NAME, '.')
                    .or_else(|| length_after("capped", ':'))
                    .map(Self::Capped)
            });
        match extractor {
            Some(extractor) if object.options.is_empty() => Ok(Some(extractor)),
            _ => Err(object.unsupported("prefix extractor")),
        }
    }

    /// Whether the key has a prefix.
    #[inline]
    #[must_use]
    pub fn in_domain(&self, user_key: &[u8]) -> bool {
        match *self {
            Self::Fixed(len) => user_key.len() >= len,
            Self::Capped(_) => true,
        }
    }

    /// The key's prefix, or `None` outside the domain.
    #[inline]
    #[must_use]
    pub fn transform<'a>(&self, user_key: &'a [u8]) -> Option<&'a [u8]> {
        match *self {
            Self::Fixed(len) => user_key.get(..len),
            Self::Capped(len) => Some(&user_key[..len.min(user_key.len())]),
        }
    }

    /// The text of the property `rocksdb.prefix.extractor.name` (`SliceTransform::AsString`).
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Fixed(len) => format!("{FIXED_NAME}.{len}"),
            Self::Capped(len) => format!("{CAPPED_NAME}.{len}"),
        }
    }
}

/// A prefix extractor of an application. Several threads call it at once.
pub trait Prefixes: Debug + Send + Sync {
    /// Bytes of the prefix, with which the key begins; `None` if the key is outside of the domain.
    fn prefix_len(&self, user_key: &[u8]) -> Option<usize>;

    /// Whether a call has failed. What was made with its result must not be used.
    fn has_failed(&self) -> bool;
}

/// A prefix extractor of an application; equal if it is the same object.
#[derive(Debug, Clone)]
pub struct CustomPrefixes(pub Arc<dyn Prefixes>);

impl CustomPrefixes {
    /// The key's prefix, or `None` outside of the domain.
    pub fn transform<'a>(&self, user_key: &'a [u8]) -> Option<&'a [u8]> {
        user_key.get(..self.0.prefix_len(user_key)?)
    }
}

impl PartialEq for CustomPrefixes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomPrefixes {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_the_built_in_extractors_is_read() {
        for text in [
            "rocksdb.FixedPrefix.4",
            "fixed:4",
            "{id=rocksdb.FixedPrefix.4;}",
            "id=fixed:4",
        ] {
            assert_eq!(
                PrefixExtractor::parse(text),
                Ok(Some(PrefixExtractor::Fixed(4))),
                "{text}"
            );
        }
        for text in ["rocksdb.CappedPrefix.12", "capped:12"] {
            assert_eq!(
                PrefixExtractor::parse(text),
                Ok(Some(PrefixExtractor::Capped(12))),
                "{text}"
            );
        }
        for text in ["", "nullptr"] {
            assert_eq!(PrefixExtractor::parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn other_extractors_are_unsupported() {
        for text in [
            "rocksdb.FixedPrefix",
            "rocksdb.FixedPrefix.",
            "rocksdb.FixedPrefix.+4",
            "rocksdb.FixedPrefix.-1",
            "rocksdb.FixedPrefix.4x",
            "fixed:99999999999999999999",
            "rocksdb.Noop",
            "MyPrefix",
            "{id=fixed:4;other=1;}",
        ] {
            let error = PrefixExtractor::parse(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "{text}");
        }
    }

    #[test]
    fn fixed_refuses_short_keys_and_capped_keeps_them() {
        let fixed = PrefixExtractor::Fixed(3);
        assert_eq!(fixed.transform(b"ab"), None);
        assert_eq!(fixed.transform(b"abc"), Some(&b"abc"[..]));
        assert_eq!(fixed.transform(b"abcd"), Some(&b"abc"[..]));
        let capped = PrefixExtractor::Capped(3);
        assert_eq!(capped.transform(b"ab"), Some(&b"ab"[..]));
        assert_eq!(capped.transform(b"abcd"), Some(&b"abc"[..]));
    }

    proptest! {
        #[test]
        fn a_name_reads_back(len: usize, capped: bool) {
            let extractor =
                if capped { PrefixExtractor::Capped(len) } else { PrefixExtractor::Fixed(len) };
            prop_assert_eq!(PrefixExtractor::parse(&extractor.name())?, Some(extractor));
        }

        #[test]
        fn the_domain_is_where_a_prefix_exists(len in 0usize..20, capped: bool, key: Vec<u8>) {
            let extractor =
                if capped { PrefixExtractor::Capped(len) } else { PrefixExtractor::Fixed(len) };
            prop_assert_eq!(extractor.in_domain(&key), extractor.transform(&key).is_some());
        }

        #[test]
        fn parsing_is_total(text in "\\PC{0,30}|[{}=;:.a-z0-9]{0,30}") {
            let _ = PrefixExtractor::parse(&text);
        }
    }
}
