//! The text grammar that OPTIONS files and the CompactionService messages share.
//!
//! ```text
//! struct := ( name "=" value ";" )*       the last ";" is optional; may stand in "{}"
//! value  := anything without ";" | "{" balanced "}"
//! vector := element ( ":" element )*      an element that holds a separator stands in "{}"
//! ```
//!
//! Source: `options/options_helper.cc` (`StringToMap`, `OptionTypeInfo::NextToken`,
//! `OptionTypeInfo::StripOuterBraces`, `UnescapeOptionString`).

use crate::error::{Error, Result};
use crate::names;

/// Maximum nesting of braces; RocksDB writes fewer than ten.
pub(crate) const MAX_DEPTH: usize = 32;

/// A part of a text, with its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextSlice<'a> {
    /// Byte offset of `text` in the caller's text.
    pub at: u64,
    pub text: &'a str,
}

impl<'a> TextSlice<'a> {
    pub(crate) fn new(at: u64, text: &'a str) -> Self {
        Self { at, text }
    }

    pub(crate) fn corruption(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.at, what.into())
    }

    fn slice(&self, from: usize, to: usize) -> Self {
        Self::new(self.at + from as u64, &self.text[from..to])
    }

    /// Without white space (as in C's `isspace`) at both ends.
    pub(crate) fn trim(&self) -> Self {
        let from = self.text.len() - self.text.trim_start_matches(is_space).len();
        let kept = self.text[from..].trim_end_matches(is_space).len();
        self.slice(from, from + kept)
    }

    /// Without one pair of braces, if one pair encloses all of the text.
    pub(crate) fn without_braces(&self) -> Result<Self> {
        if self.text.starts_with('{') && self.closing_brace(0)? + 1 == self.text.len() {
            return Ok(self.slice(1, self.text.len() - 1));
        }
        Ok(*self)
    }

    /// Index of the brace that closes the one at `open`.
    fn closing_brace(&self, open: usize) -> Result<usize> {
        let mut depth = 0usize;
        for (i, byte) in self.text.bytes().enumerate().skip(open) {
            match byte {
                b'{' if depth == MAX_DEPTH => {
                    let at = self.at + i as u64;
                    return Err(Error::unsupported(at, "braces nested too deeply"));
                }
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(i);
            }
        }
        Err(Error::corruption(
            self.at + open as u64,
            "brace without its partner",
        ))
    }

    /// Index of the first byte at or after `from` that is not white space.
    fn skip_space(&self, from: usize) -> usize {
        let rest = &self.text[from..];
        from + rest.len() - rest.trim_start_matches(is_space).len()
    }

    /// The end of the value that starts at `from`, and the begin of the text behind `separator`.
    fn value_end(&self, from: usize, separator: char) -> Result<(usize, usize)> {
        let len = self.text.len();
        if !self.text[from..].starts_with('{') {
            let end = self.text[from..].find(separator).map_or(len, |i| from + i);
            return Ok((end, len.min(end + 1)));
        }
        let end = self.closing_brace(from)? + 1;
        let next = self.skip_space(end);
        if next < len && !self.text[next..].starts_with(separator) {
            let at = self.at + next as u64;
            return Err(Error::corruption(at, "text behind a closing brace"));
        }
        Ok((end, len.min(next + 1)))
    }

    /// The `name=value` pairs of a struct, in the order of the text; values keep their braces.
    pub(crate) fn fields(&self) -> Result<Vec<(&'a str, Self)>> {
        let mut inner = self.trim();
        while inner.text.len() > 2 && inner.text.starts_with('{') && inner.text.ends_with('}') {
            inner = inner.slice(1, inner.text.len() - 1).trim();
        }
        if inner.text == "{}" {
            return Ok(Vec::new());
        }
        let mut fields = Vec::new();
        let mut at = 0;
        while at < inner.text.len() {
            let stop = inner.text[at..].find(['=', '{', '}', ';']);
            let equals = stop.map_or(inner.text.len(), |i| at + i);
            let name = inner.slice(at, equals).trim();
            if !inner.text[equals..].starts_with('=') || name.text.is_empty() {
                return Err(name.corruption("a name and '=' expected"));
            }
            let from = inner.skip_space(equals + 1);
            let (end, next) = inner.value_end(from, ';')?;
            fields.push((name.text, inner.slice(from, end).trim()));
            at = next;
        }
        Ok(fields)
    }

    /// The elements of a vector, each without the braces around it.
    pub(crate) fn elements(&self, separator: char) -> Result<Vec<Self>> {
        let inner = self.without_braces()?;
        let mut elements = Vec::new();
        let mut at = 0;
        while at < inner.text.len() {
            let from = inner.skip_space(at);
            let (end, next) = inner.value_end(from, separator)?;
            let element = inner.slice(from, end).trim();
            elements.push(element.without_braces()?.trim());
            at = next;
        }
        Ok(elements)
    }
}

/// White space in the sense of C's `isspace`.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// The text of an OPTIONS file. RocksDB writes names of column families as they are, so the file need not be UTF-8.
/// Other bytes become `\xNN`, which RocksDB never writes: it puts backslashes only before backslashes, `n`, `r`, `:`
/// and `#`.
pub fn from_bytes(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut text = String::new();
        for chunk in error.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            names::push_bytes(&mut text, chunk.invalid());
        }
        text
    })
}

/// The name of a column family in the title of a section, which [`from_bytes`] may have changed.
pub(crate) fn unescape_name(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if let Some((byte, behind)) = names::escaped_byte(rest) {
            name.push(byte);
            rest = behind;
            continue;
        }
        let (byte, behind) = match (first, behind.split_first()) {
            (b'\\', Some((b'n', behind))) => (b'\n', behind),
            (b'\\', Some((b'r', behind))) => (b'\r', behind),
            (b'\\', Some((&other, behind))) => (other, behind),
            (b'\\', None) => break,
            _ => (first, behind),
        };
        name.push(byte);
        rest = behind;
    }
    name
}

/// Undoes the backslash escapes of `EscapeOptionString`.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match if c == '\\' { chars.next() } else { None } {
            None if c == '\\' => {}
            None => out.push(c),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some(other) => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn texts<'a>(pieces: &[TextSlice<'a>]) -> Vec<&'a str> {
        pieces.iter().map(|p| p.text).collect()
    }

    #[test]
    fn fields_keep_the_braces_of_their_values() {
        let piece = TextSlice::new(4, " {a=1; b = {x=1;y={z=2}} ;c=p=q} ");
        let fields = piece.fields().unwrap();
        assert_eq!(fields[0], ("a", TextSlice::new(8, "1")));
        assert_eq!(fields[1], ("b", TextSlice::new(15, "{x=1;y={z=2}}")));
        assert_eq!(fields[2], ("c", TextSlice::new(32, "p=q")));
    }

    #[test]
    fn elements_are_split_outside_of_braces() {
        let split = |text| texts(&TextSlice::new(0, text).elements(':').unwrap()).join("|");
        assert_eq!(split("a:b"), "a|b");
        assert_eq!(split("{a:b}"), "a|b");
        assert_eq!(split("{{a:b}:{c}}"), "a:b|c");
        assert_eq!(split("{{{f=1:2}}}"), "{f=1:2}");
        assert_eq!(split("{{f}:{g}}"), "f|g");
        assert_eq!(split(""), "");
    }

    #[test]
    fn unbalanced_and_deep_braces_are_refused() {
        for text in ["a={", "a={}}", "a", "=1", "a;b=1", "a={1}2;"] {
            let error = TextSlice::new(0, text).fields().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corruption, "{text}");
        }
        let deep = format!("a={}1{}", "{".repeat(40), "}".repeat(40));
        let error = TextSlice::new(0, &deep).fields().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a\:b\\c\#\n\r\"), "a:b\\c#\n\r");
    }

    #[test]
    fn names_that_are_no_text_are_kept() {
        let text = from_bytes(b"[CFOptions \"\x80a\xff\"]".to_vec());
        assert_eq!(text, r#"[CFOptions "\x80a\xFF"]"#);
        assert_eq!(unescape_name(r"\x80a\xFF"), b"\x80a\xff");
        // RocksDB escapes the backslash of such a name.
        assert_eq!(unescape_name(r"\\x80"), br"\x80");
        assert_eq!(unescape_name(r"a\:b\\c\#\n\r\"), b"a:b\\c#\n\r");
    }

    proptest! {
        #[test]
        fn splitting_is_total(text in "[a={};: \\\\é]{0,60}") {
            let piece = TextSlice::new(0, &text);
            let _ = piece.fields();
            let _ = piece.elements(':');
            let _ = unescape_name(&text);
            prop_assert_eq!(from_bytes(text.clone().into_bytes()), text.clone());
            let _ = unescape(&text);
        }
    }
}
