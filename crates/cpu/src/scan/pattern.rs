//! Whether bytes match a pattern.

use rockmill_core::scan::{Pattern, PatternPart};

/// Whether bytes match a pattern.
pub fn matches(pattern: &Pattern, bytes: &[u8]) -> bool {
    match pattern {
        Pattern::Prefix(prefix) => bytes.starts_with(prefix),
        Pattern::Suffix(suffix) => bytes.ends_with(suffix),
        Pattern::Contains(part) => contains(bytes, part),
        Pattern::Parts(parts) => matches_parts(parts, bytes),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return true;
    };
    let mut bytes = bytes;
    while let Some(at) = bytes.iter().position(|byte| byte == first) {
        bytes = &bytes[at + 1..];
        if bytes.starts_with(rest) {
            return true;
        }
    }
    false
}

/// Tries the parts behind the last `%` at one place after another. If parts before it had matched further back, only
/// less would be left.
fn matches_parts(parts: &[PatternPart], bytes: &[u8]) -> bool {
    let (mut part, mut at) = (0, 0);
    // The part behind the last `%`, and the next place to try it.
    let mut again: Option<(usize, usize)> = None;
    loop {
        let end = match parts.get(part) {
            None => (at == bytes.len()).then_some(at),
            Some(PatternPart::AnyBytes) => {
                again = Some((part + 1, at + 1));
                Some(at)
            }
            Some(PatternPart::AnyCharacter) => character_len(bytes, at).map(|len| at + len),
            Some(PatternPart::Bytes(own)) => bytes[at..].starts_with(own).then(|| at + own.len()),
        };
        match (end, again) {
            (Some(_), _) if part == parts.len() => return true,
            (Some(end), _) => (part, at) = (part + 1, end),
            (None, Some((first, from))) if from <= bytes.len() => {
                (part, at) = (first, from);
                again = Some((first, from + 1));
            }
            (None, _) => return false,
        }
    }
}

/// Bytes of the character that begins at an offset; `None` at the end and within a character.
fn character_len(bytes: &[u8], at: usize) -> Option<usize> {
    const MAX_LEN: usize = 4;
    let first = *bytes.get(at)?;
    if is_continuation(first) {
        let reaches = |back: &usize| utf8_len(&bytes[at - back..]) > *back;
        let is_inside = (1..MAX_LEN.min(at + 1)).any(|back| reaches(&back));
        return (!is_inside).then_some(1);
    }
    Some(utf8_len(&bytes[at..]).max(1))
}

/// Bytes of the character of UTF-8 at the start of some bytes; 0 if there is none.
fn utf8_len(bytes: &[u8]) -> usize {
    let at = |i: usize| bytes.get(i).copied().unwrap_or_default();
    let (second, len) = match at(0) {
        0..=0x7f => return usize::from(!bytes.is_empty()),
        0xc2..=0xdf => (0x80..=0xbf, 2),
        0xe0 => (0xa0..=0xbf, 3),
        0xed => (0x80..=0x9f, 3),
        0xe1..=0xef => (0x80..=0xbf, 3),
        0xf0 => (0x90..=0xbf, 4),
        0xf1..=0xf3 => (0x80..=0xbf, 4),
        0xf4 => (0x80..=0x8f, 4),
        _ => return 0,
    };
    let is_whole = second.contains(&at(1)) && (2..len).all(|i| is_continuation(at(i)));
    if is_whole { len } else { 0 }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}
