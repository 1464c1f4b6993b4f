//! The values that merge operators make of operands: RocksDB's (`utilities/merge_operators`) and the application's own.

use crate::error::Result;
use crate::plugins::CustomMerge;

/// Most bytes that a merge operator may make for a key, and most that its operands may have.
pub const MAX_MADE_BYTES: usize = 8 << 20;

/// A merge operator. Those of RocksDB never fail.
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
    /// One of the application. Only the CPU backend calls it.
    Custom(CustomMerge),
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
    /// (`FullMergeV2`). `None` if the operands have to stay.
    ///
    /// # Errors
    /// Declined if an operator of the application fails.
    pub fn full(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>> {
        let all = base.into_iter().chain(operands.iter().copied());
        Ok(Some(match self {
            Self::UInt64Add => sum(all).to_le_bytes().to_vec(),
            Self::Put => operands.last().copied().unwrap_or_default().to_vec(),
            Self::Max => all.max().unwrap_or_default().to_vec(),
            Self::BytesXor => all.fold(Vec::new(), xor),
            Self::Append { delimiter, .. } => {
                let all: Vec<_> = all.collect();
                all.join(delimiter.as_slice())
            }
            Self::Custom(CustomMerge(functions)) => return functions.full(key, base, operands),
        }))
    }

    /// One operand in place of several, oldest first; `None` if they stay (`PartialMergeMulti`).
    ///
    /// # Errors
    /// The errors of [`Merging::full`].
    pub fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Append { partial: false, .. } => Ok(None),
            Self::Custom(CustomMerge(functions)) => functions.partial(key, operands),
            _ => self.full(key, None, operands),
        }
    }

    /// Whether [`Merging::partial`] is for a single operand as well.
    pub fn takes_single_operand(&self) -> bool {
        matches!(self, Self::Custom(CustomMerge(functions)) if functions.takes_single_operand())
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
        let full = |merging: &Merging, base: Option<&[u8]>, operands: &[&[u8]]| {
            let made = merging.full(b"key", base, operands);
            made.expect("it never fails").expect("it makes a value")
        };
        let add =
            |base: Option<&[u8]>, operands: &[&[u8]]| full(&Merging::UInt64Add, base, operands);
        assert_eq!(add(Some(&number(7)), &[&number(u64::MAX)]), number(6));
        assert_eq!(add(Some(b"short"), &[b"", &number(3)]), number(3));
        assert_eq!(add(None, &[b"short"]), number(0));
        let max = |base: Option<&[u8]>, operands: &[&[u8]]| full(&Merging::Max, base, operands);
        assert_eq!(max(Some(b"b"), &[b"a", b"ab"]), b"b");
        assert_eq!(max(None, &[b"a", b"ab", b""]), b"ab");
        assert_eq!(full(&Merging::Put, Some(b"b"), &[b"x", b"y"]), b"y");
        let xored = full(&Merging::BytesXor, Some(&[1, 2, 3]), &[&[1], &[0, 0, 0, 9]]);
        assert_eq!(xored, [0, 2, 3, 9]);
        let append = |partial| Merging::Append {
            delimiter: b", ".to_vec(),
            partial,
        };
        assert_eq!(full(&append(true), Some(b""), &[b"x", b"y"]), b", x, y");
        assert_eq!(full(&append(true), None, &[b"x", b"y"]), b"x, y");
        let partial = |partial| append(partial).partial(b"key", &[b"x", b"y"]);
        assert_eq!(partial(true), Ok(Some(b"x, y".to_vec())));
        assert_eq!(partial(false), Ok(None));
    }
}
