//! Names of column families as text. RocksDB takes any bytes for a name.
//!
//! Printable text stays as it is, and every other byte and the backslash are `\xNN`. So different names have different
//! texts, and no text controls a terminal.

/// The name as text.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_printable(character) {
                text.push(character);
            } else {
                push_bytes(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

/// The name of a text: the inverse of [`escape`]. A backslash that does not begin `\xNN` stands for itself.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = escaped_byte(rest).unwrap_or((first, behind));
        name.push(byte);
        rest = behind;
    }
    name
}

/// The byte of the `\xNN` at the start of a text, and the rest of the text.
pub(crate) fn escaped_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, behind) = text.strip_prefix(b"\\x")?.split_at_checked(2)?;
    // A sign is not a digit.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u8::from_str_radix(digits, 16).ok()?, behind))
}

/// Appends bytes as `\xNN`.
pub(crate) fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02X}"));
    }
}

fn is_printable(character: char) -> bool {
    // The standard library's table of printable characters; it escapes these two only in literals.
    matches!(character, '\'' | '"') || character.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn printable_text_stays_as_it_is() {
        for name in ["default", "a b", "a'b\"", "täble", "表"] {
            assert_eq!(escape(name.as_bytes()), name);
            assert_eq!(unescape(name), name.as_bytes());
        }
        assert_eq!(escape(b"\x1b[2J\n\\\x80"), r"\x1B[2J\x0A\x5C\x80");
        assert_eq!(escape("a\u{202e}b".as_bytes()), r"a\xE2\x80\xAEb");
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stands_for_itself() {
        for text in [r"a\b", r"\", r"\x", r"\x4", r"\x+4", r"\xg0"] {
            assert_eq!(unescape(text), text.as_bytes());
        }
        assert_eq!(unescape(r"\x80\xfF"), [0x80, 0xff]);
    }

    proptest! {
        #[test]
        fn the_text_of_a_name_tells_the_name(
            name: Vec<u8>,
            text in r"[a\\x0-9é\n]{0,20}",
        ) {
            for name in [&name[..], text.as_bytes()] {
                prop_assert_eq!(unescape(&escape(name)), name);
            }
            let _ = unescape(&text);
        }
    }
}
