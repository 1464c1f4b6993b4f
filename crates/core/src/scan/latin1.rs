//! MySQL's character set latin1: Windows-1252, whose five bytes without a character are control characters.

/// Maximum bytes of a character in UTF-8.
pub const MAX_CHARACTER_BYTES: u64 = 3;

/// The first byte whose character has a number other than the byte.
const FIRST: u8 = 0x80;

/// The characters of the bytes from [`FIRST`] on whose numbers differ, and of those between.
const CHARACTERS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Text of latin1 as UTF-8.
pub fn utf8_of_latin1(bytes: &[u8]) -> String {
    let character = |&byte: &u8| {
        let place = byte.checked_sub(FIRST).map(usize::from);
        let special = place.and_then(|place| CHARACTERS.get(place));
        special.copied().unwrap_or(char::from(byte))
    };
    bytes.iter().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_one_character() {
        let all: Vec<_> = (0..=u8::MAX).collect();
        let text = utf8_of_latin1(&all);
        assert_eq!(text.chars().count(), all.len());
        let longest = text.chars().map(char::len_utf8).max();
        assert_eq!(longest.map(|bytes| bytes as u64), Some(MAX_CHARACTER_BYTES));
        let own_number = all.iter().zip(text.chars());
        let own_number =
            own_number.filter(|(byte, character)| u32::from(**byte) == u32::from(*character));
        // 27 bytes of Windows-1252 have characters with other numbers.
        assert_eq!(own_number.count(), all.len() - 27);
        assert_eq!(
            utf8_of_latin1(b"f\xfcr 5\x80\xa0\x81"),
            "für 5€\u{a0}\u{81}"
        );
    }
}
