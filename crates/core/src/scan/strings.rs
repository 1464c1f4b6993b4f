//! Strings whose bytes sort as the strings do, also when others follow them.

use serde::{Deserialize, Serialize};

/// The number takes two bytes at most.
pub const MAX_SPACES: i128 = 1 << 16;

/// How a string is cut into groups of bytes, each followed by a byte that says whether another one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StringGroups {
    /// Groups of 8 bytes, as MyRocks stores VARBINARY since its key format 13. The byte behind a group is 9 if another one
    /// follows, else the number of the group's bytes; the rest of the group are zeros.
    Counted,
    /// Groups of fixed size, as MyRocks stores VARCHAR with a collation that ignores spaces at the end. The byte behind
    /// a group is 2 if none follows, which is filled with spaces. Else it says how the next group compares with spaces:
    /// 1 if it is less, 3 if it is greater.
    Padded {
        /// Bytes of a group.
        bytes: u8,
    },
}

impl StringGroups {
    const COUNTED_BYTES: u8 = 8;

    /// Number of spaces that MyRocks adds to the one that it stores, so that it is not negative.
    pub const SPACES_OFFSET: i128 = 8;

    /// Bytes of a group.
    fn group_bytes(self) -> usize {
        usize::from(match self {
            Self::Counted => Self::COUNTED_BYTES,
            Self::Padded { bytes } => bytes,
        })
    }

    /// Bytes of the string that a group has, and whether another group follows it.
    fn meaning(self, marker: u8) -> Option<(usize, bool)> {
        match (self, marker) {
            (Self::Counted, 0..=Self::COUNTED_BYTES) => Some((usize::from(marker), false)),
            (Self::Counted, 9) => Some((usize::from(Self::COUNTED_BYTES), true)),
            (Self::Counted, _) => None,
            (Self::Padded { bytes }, 2) => Some((usize::from(bytes), false)),
            (Self::Padded { bytes }, 1 | 3) => Some((usize::from(bytes), true)),
            (Self::Padded { .. }, _) => None,
        }
    }

    /// Bytes of all groups of the string with which some bytes begin, if they begin with one.
    pub fn size(self, stored: &[u8]) -> Option<usize> {
        let mut size = 0;
        loop {
            size += self.group_bytes() + 1;
            let (_, continues) = self.meaning(*stored.get(size - 1)?)?;
            if !continues {
                return Some(size);
            }
        }
    }

    /// The string with which some bytes begin, if they begin with one. The spaces that fill the last group of a padded
    /// string belong to it.
    pub fn decode(self, stored: &[u8]) -> Option<Vec<u8>> {
        let groups = stored[..self.size(stored)?].chunks(self.group_bytes() + 1);
        let mut string = Vec::new();
        for group in groups {
            let (marker, group) = group.split_last()?;
            string.extend_from_slice(&group[..self.meaning(*marker)?.0]);
        }
        Some(string)
    }

    /// As [`StringGroups::decode`], of a padded string with as many spaces at its end as belong to it.
    pub fn decode_padded(self, stored: &[u8], spaces: i128) -> Option<Vec<u8>> {
        let mut string = self.decode(stored)?;
        let spaces = Some(spaces).filter(|spaces| *spaces < MAX_SPACES)?;
        let len = spaces.saturating_add(string.len() as i128 - Self::SPACES_OFFSET);
        let len = usize::try_from(len).ok()?;
        string.resize(len, b' ');
        Some(string)
    }

    /// The bytes of [`StringGroups::Counted`].
    pub fn encode_counted(string: &[u8]) -> Vec<u8> {
        const GROUP: usize = StringGroups::COUNTED_BYTES as usize;
        let groups = string.len().div_ceil(GROUP).max(1);
        let mut stored = Vec::with_capacity(groups * (GROUP + 1));
        for group in 0..groups {
            let bytes = &string[group * GROUP..string.len().min((group + 1) * GROUP)];
            stored.extend_from_slice(bytes);
            stored.resize(group * (GROUP + 1) + GROUP, 0);
            stored.push(if group + 1 < groups {
                9
            } else {
                bytes.len() as u8
            });
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![0u8..3, 8u8..11, Just(255)], 0..30)
    }

    proptest! {
        #[test]
        fn counted_strings_sort_as_their_bytes(a in strings(), b in strings(), after in any::<u8>()) {
            let stored = [&a, &b].map(|string| StringGroups::encode_counted(string));
            prop_assert_eq!(stored[0].cmp(&stored[1]), a.cmp(&b));
            let mut followed = stored[0].clone();
            followed.push(after);
            prop_assert_eq!(StringGroups::Counted.size(&followed), Some(stored[0].len()));
            prop_assert_eq!(StringGroups::Counted.decode(&followed), Some(a));
            let cut = &stored[1][..stored[1].len() - 1];
            prop_assert_eq!(StringGroups::Counted.decode(cut), None);
        }
    }

    #[test]
    fn padded_strings_end_with_the_group_that_says_so() {
        let padded = StringGroups::Padded { bytes: 3 };
        assert_eq!(padded.size(b"abc\x03d  \x02rest"), Some(8));
        assert_eq!(padded.decode(b"abc\x03d  \x02rest").unwrap(), b"abcd  ");
        assert_eq!(padded.decode(b"abc\x01d  \x04"), None);
        assert_eq!(padded.decode(b"abc\x01"), None);
        let stored = b"abc\x03d  \x02";
        assert_eq!(padded.decode_padded(stored, 6).unwrap(), b"abcd");
        assert_eq!(padded.decode_padded(stored, 9).unwrap(), b"abcd   ");
        assert_eq!(padded.decode_padded(stored, 1), None);
        assert_eq!(padded.decode_padded(stored, 1 << 16), None);
        assert_eq!(padded.decode_padded(stored, i128::MIN), None);
    }
}
