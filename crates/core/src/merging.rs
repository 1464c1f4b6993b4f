//! What RocksDB's merge operators make of operands (`utilities/merge_operators`).

/// A merge operator of RocksDB. None of them fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merging {
    /// `UInt64AddOperator`: sum of little-endian numbers, modulo 2^64. A value whose size is not 8 bytes counts as 0.
    UInt64Add,
    /// `PutOperator`: the newest operand.
    Put,
    /// `MaxOperator`: the largest in the order of bytes.
    Max,
    /// `BytesXOR`: exclusive or, byte by byte; the rest of the longer value stays.
    BytesXor,
    /// `StringAppendOperator` and `StringAppendTESTOperator`: all operands, joined.
    Append {
        /// Bytes between two operands.
        delimiter: Vec<u8>,
        /// Whether operands are also merged without their base.
        partial: bool,
    },
}

impl Merging {
    /// Length of the bytes between two operands.
    pub fn delimiter_len(&self) -> usize {
        match self {
            Self::Append { delimiter, .. } => delimiter.len(),
            _ => 0,
        }
    }

    /// The value of a key with operands, oldest first, of which there is at least one, on top of `base`, if there is one
    /// (`FullMergeV2`).
    pub fn full(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        let all = base.into_iter().chain(operands.iter().copied());
        match self {
            Self::UInt64Add => sum(all).to_le_bytes().to_vec(),
            Self::Put => operands.last().copied().unwrap_or_default().to_vec(),
            Self::Max => all.max().unwrap_or_default().to_vec(),
            Self::BytesXor => all.fold(Vec::new(), xor),
            Self::Append { delimiter, .. } => {
                let all: Vec<_> = all.collect();
                all.join(delimiter.as_slice())
            }
        }
    }

    /// One operand in place of several, oldest first; `None` if they stay (`PartialMergeMulti`).
    pub fn partial(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        match self {
            Self::Append { partial: false, .. } => None,
            _ => Some(self.full(None, operands)),
        }
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a [u8]>) -> u64 {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    all.map(number).fold(0, u64::wrapping_add)
}

fn xor(mut sum: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    sum.resize(sum.len().max(bytes.len()), 0);
    sum.iter_mut()
        .zip(bytes)
        .for_each(|(sum, byte)| *sum ^= byte);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_merged_as_rocksdbs_operators_merge_them() {
        let number = |n: u64| n.to_le_bytes().to_vec();
        let add = Merging::UInt64Add;
        assert_eq!(add.full(Some(&number(7)), &[&number(u64::MAX)]), number(6));
        assert_eq!(add.full(Some(b"short"), &[b"", &number(3)]), number(3));
        assert_eq!(add.full(None, &[b"short"]), number(0));
        let max = |base, operands: &[&[u8]]| Merging::Max.full(base, operands);
        assert_eq!(max(Some(b"b"), &[b"a", b"ab"]), b"b");
        assert_eq!(max(None, &[b"a", b"ab", b""]), b"ab");
        assert_eq!(Merging::Put.full(Some(b"b"), &[b"x", b"y"]), b"y");
        let xored = Merging::BytesXor.full(Some(&[1, 2, 3]), &[&[1], &[0, 0, 0, 9]]);
        assert_eq!(xored, [0, 2, 3, 9]);
        let append = |partial| Merging::Append {
            delimiter: b", ".to_vec(),
            partial,
        };
        assert_eq!(append(true).full(Some(b""), &[b"x", b"y"]), b", x, y");
        assert_eq!(append(true).full(None, &[b"x", b"y"]), b"x, y");
        assert_eq!(append(true).partial(&[b"x", b"y"]), Some(b"x, y".to_vec()));
        assert_eq!(append(false).partial(&[b"x", b"y"]), None);
    }
}
