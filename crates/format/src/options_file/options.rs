//! One level of options: names with their values as text, read on demand.

use std::collections::BTreeMap;

use super::text::{TextSlice, unescape};
use crate::error::{Error, Result};

/// RocksDB's text for a pointer option that is not set (`kNullptrString`).
const NULLPTR: &str = "nullptr";

/// Name under which a struct value holds the id of a customizable object
/// (`OptionTypeInfo::kIdPropName`).
const ID: &str = "id";

/// Options by name, with their values as RocksDB wrote them but without escapes.
///
/// The getters take a default for absent options, because RocksDB omits options that it does not know or that have no
/// text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    at: u64,
    text: String,
}

impl Options {
    /// Adds an option unless it exists already: as in `RocksDBOptionsParser::Parse`, the first one of a file counts.
    pub(super) fn insert_first(&mut self, name: &str, value: TextSlice<'_>) {
        let text = unescape(value.text);
        self.entries
            .entry(name.to_owned())
            .or_insert(Entry { at: value.at, text });
    }

    /// Reads the value of a struct option or of a customizable one, such as
    /// `{level=32767;window_bits=-14;}` or `{id=ribbonfilter:10:2;bloom_before_level=2;}`.
    ///
    /// A value without `=`, such as `bloomfilter:10:false`, becomes the single option `id`; an
    /// empty one or `nullptr` becomes no option at all (`Configurable::GetOptionsMap`).
    ///
    /// # Errors
    /// Corruption if braces or names do not match up, Unsupported if braces are nested too deeply;
    /// the offset counts within `value`.
    pub fn from_value(value: &str) -> Result<Self> {
        Self::from_piece(TextSlice::new(0, value))
    }

    fn from_piece(value: TextSlice<'_>) -> Result<Self> {
        let inner = value.trim().without_braces()?.trim();
        let mut options = Self::default();
        if inner.text.is_empty() || inner.text == NULLPTR {
            return Ok(options);
        }
        let fields = if inner.text.contains('=') {
            inner.fields()?
        } else {
            vec![(ID, inner)]
        };
        for (name, value) in fields {
            let text = unescape(value.text);
            options
                .entries
                .insert(name.to_owned(), Entry { at: value.at, text });
        }
        Ok(options)
    }

    /// Offset of the option's value in the whole text; 0 if the option is absent.
    pub(super) fn offset(&self, key: &str) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.at)
    }

    /// Number of options.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry.text.as_str()))
    }

    /// The text of an option.
    pub fn str(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|entry| entry.text.as_str())
    }

    /// The text of a string option. One pair of braces around it is removed (`OptionTypeInfo::Parse`).
    pub fn string(&self, key: &str) -> Option<&str> {
        let text = self.str(key)?;
        let bare = TextSlice::new(0, text).without_braces();
        Some(bare.map_or(text, |bare| bare.text))
    }

    /// The option `id`: the object of a customizable option.
    pub fn id(&self) -> Option<&str> {
        self.str(ID)
    }

    /// Whether the option is absent, empty, `nullptr` or `{}`.
    pub fn is_null(&self, key: &str) -> bool {
        matches!(self.str(key), None | Some("" | NULLPTR | "{}"))
    }

    /// This option alone, if it is there.
    #[must_use]
    pub fn only(&self, key: &str) -> Self {
        let entry = self.entries.get_key_value(key);
        let entry = entry.map(|(key, entry)| (key.clone(), entry.clone()));
        Self {
            entries: entry.into_iter().collect(),
        }
    }

    /// Name of the object that a customizable option has, `name` or `{id=name;..}`; `None` without an object. It is empty if
    /// the object has no name.
    pub fn object_name(&self, key: &str) -> Option<String> {
        let text = self.str(key).filter(|&text| text != NULLPTR)?;
        let object = self.nested(key).ok();
        let name = object.as_ref().and_then(Self::id);
        Some(name.unwrap_or(text).to_owned())
    }

    /// A truth value: `true`, `1`, `false` or `0`.
    ///
    /// # Errors
    /// Corruption for other text.
    pub fn bool(&self, key: &str, default: bool) -> Result<bool> {
        self.scalar(key, default, "truth value", |text| match text {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    /// An unsigned number, with a binary suffix k, m, g or t if a person wrote one
    /// (`util/string_util.cc:ParseUint64`).
    ///
    /// # Errors
    /// Corruption for other text, also if RocksDB would ignore the text after the digits.
    pub fn u64(&self, key: &str, default: u64) -> Result<u64> {
        self.scalar(key, default, "unsigned number", |text| {
            let (digits, shift) = split_suffix(text);
            digits.parse::<u64>().ok()?.checked_mul(1 << shift)
        })
    }

    /// A signed number, with suffixes as for [`Options::u64`].
    ///
    /// # Errors
    /// Corruption for other text.
    pub fn i64(&self, key: &str, default: i64) -> Result<i64> {
        self.scalar(key, default, "number", |text| {
            let (digits, shift) = split_suffix(text);
            digits.parse::<i64>().ok()?.checked_mul(1 << shift)
        })
    }

    /// A number with a fraction. Its decimal point may be a comma, because RocksDB uses the process's locale.
    ///
    /// # Errors
    /// Corruption for text that is not a number.
    pub fn f64(&self, key: &str, default: f64) -> Result<f64> {
        self.scalar(key, default, "number", |text| {
            text.parse()
                .or_else(|_| text.replacen(',', ".", 1).parse())
                .ok()
        })
    }

    /// The options inside of a struct option or a customizable one, as [`Options::from_value`]
    /// reads them; empty if the option is absent.
    ///
    /// # Errors
    /// The errors of [`Options::from_value`], at the offset in the whole text.
    pub fn nested(&self, key: &str) -> Result<Self> {
        let Some(entry) = self.entries.get(key) else {
            return Ok(Self::default());
        };
        Self::from_piece(TextSlice::new(entry.at, &entry.text))
            .map_err(|error| of_option(key, error))
    }

    /// The elements of a vector option such as `kNoCompression:kLZ4Compression`; empty if the
    /// option is absent.
    ///
    /// # Errors
    /// Corruption if braces do not match up, Unsupported if they are nested too deeply.
    pub fn list(&self, key: &str) -> Result<Vec<String>> {
        let Some(entry) = self.entries.get(key) else {
            return Ok(Vec::new());
        };
        let elements = TextSlice::new(entry.at, &entry.text)
            .elements(':')
            .map_err(|error| of_option(key, error))?;
        Ok(elements.iter().map(|e| unescape(e.text)).collect())
    }

    fn scalar<T>(
        &self,
        key: &str,
        default: T,
        kind: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let Some(entry) = self.entries.get(key) else {
            return Ok(default);
        };
        let inner = TextSlice::new(entry.at, &entry.text).without_braces();
        let inner = inner.map_err(|error| of_option(key, error))?.trim();
        parse(inner.text).ok_or_else(|| {
            let shown: String = inner.text.chars().take(MAX_SHOWN_CHARS).collect();
            inner.corruption(format!("option {key}: {shown:?} is not a {kind}"))
        })
    }
}

/// Maximum characters of a malformed value that a message quotes.
const MAX_SHOWN_CHARS: usize = 40;

fn of_option(key: &str, error: Error) -> Error {
    Error {
        what: format!("option {key}: {}", error.what).into(),
        ..error
    }
}

/// Digits, and the binary logarithm of the unit that follows them.
fn split_suffix(text: &str) -> (&str, u32) {
    const UNITS: [(char, u32); 4] = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
    for (unit, shift) in UNITS {
        if let Some(digits) = text.strip_suffix([unit, unit.to_ascii_uppercase()]) {
            return (digits, shift);
        }
    }
    (text, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn getters_read_their_types_and_name_the_option_in_errors() {
        let o =
            Options::from_value("{a=true;b=8k;c=-3;d=0.500000;e=nullptr;f=;g={};h={7}}").unwrap();
        assert_eq!(o.len(), 8);
        assert_eq!(o.bool("a", false), Ok(true));
        assert_eq!(o.u64("b", 0), Ok(8192));
        assert_eq!(o.i64("c", 0), Ok(-3));
        assert_eq!(o.f64("d", 0.0), Ok(0.5));
        let comma = Options::from_value("{a=0,500000;b=1,000,000;c=1.000,0;}").unwrap();
        assert_eq!(comma.f64("a", 0.0), Ok(0.5));
        assert!(comma.f64("b", 0.0).is_err() && comma.f64("c", 0.0).is_err());
        assert_eq!(o.u64("h", 0), Ok(7));
        assert_eq!(
            (o.u64("absent", 9), o.bool("absent", true)),
            (Ok(9), Ok(true))
        );
        for key in ["e", "f", "g", "absent"] {
            assert!(o.is_null(key), "{key}");
        }
        assert!(!o.is_null("a"));
        let error = o.u64("c", 0).unwrap_err();
        assert!(error.what.contains("option c"), "{error}");
        assert_eq!(error.offset, 15);
        assert!(o.bool("b", false).is_err() && o.f64("a", 0.0).is_err());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let o = Options::from_value("a=18446744073709551616;b=18446744073709551615;c=99999999t")
            .unwrap();
        assert!(o.u64("a", 0).is_err());
        assert_eq!(o.u64("b", 0), Ok(u64::MAX));
        assert!(o.i64("b", 0).is_err() && o.u64("c", 0).is_err());
    }

    #[test]
    fn a_customizable_value_has_an_id_with_or_without_options() {
        let plain = Options::from_value("bloomfilter:10:false").unwrap();
        assert_eq!((plain.id(), plain.len()), (Some("bloomfilter:10:false"), 1));
        let full = Options::from_value("{id=ribbonfilter:10:2;bloom_before_level=2;}").unwrap();
        assert_eq!(full.id(), Some("ribbonfilter:10:2"));
        assert_eq!(full.i64("bloom_before_level", 0), Ok(2));
        for none in ["", "nullptr", "{}", " "] {
            assert!(Options::from_value(none).unwrap().is_empty(), "{none:?}");
        }
    }

    #[test]
    fn structs_nest_and_lists_split() {
        let o = Options::from_value(
            "s={x=1;y={z=2;};};v=kNoCompression:kLZ4Compression;w={{p=/a:b}:{q}}",
        )
        .unwrap();
        assert_eq!(
            o.nested("s").unwrap().nested("y").unwrap().i64("z", 0),
            Ok(2)
        );
        assert_eq!(o.list("v").unwrap(), ["kNoCompression", "kLZ4Compression"]);
        assert_eq!(o.list("w").unwrap(), ["p=/a:b", "q"]);
        assert!(o.list("absent").unwrap().is_empty() && o.nested("absent").unwrap().is_empty());
    }
}
