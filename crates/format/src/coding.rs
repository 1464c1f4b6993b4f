//! Integers as RocksDB writes them (`util/coding.h`): little endian, base-128 varints, zigzag.

use crate::error::{Error, Result};

/// Longest varint64, bytes.
pub const MAX_VARINT64_LEN: usize = 10;

/// Appends `bytes`. Between 8 and 32 bytes, the usual size of keys, are copied as two pieces of one size that may
/// overlap, without a call to `memcpy`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    const WORD: usize = size_of::<u64>();
    const PAIR: usize = size_of::<u128>();
    match bytes.len() {
        WORD..=PAIR => put_ends::<WORD>(out, bytes),
        0..WORD | 33.. => out.extend_from_slice(bytes),
        _ => put_ends::<PAIR>(out, bytes),
    }
}

/// Appends `bytes`, whose length is between `N` and twice `N`.
#[inline]
fn put_ends<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else {
        return out.extend_from_slice(bytes);
    };
    let last_at = out.len() + bytes.len() - N;
    out.extend_from_slice(first);
    out.truncate(last_at);
    out.extend_from_slice(last);
}

/// A forward reader over a slice in which every read is checked.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A reader that starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte in the slice.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// Corruption if fewer are left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.rest();
        if len > rest.len() {
            return Err(Error::corruption(
                self.at,
                format!("{len} bytes wanted, {} left", rest.len()),
            ));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    ///
    /// # Errors
    /// Corruption at the end of the slice.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian u32.
    ///
    /// # Errors
    /// Corruption at the end of the slice.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A little-endian u64.
    ///
    /// # Errors
    /// Corruption at the end of the slice.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A varint of at most 64 bits.
    ///
    /// # Errors
    /// Corruption if it is cut off or has more than 64 bits.
    #[inline]
    pub fn varint64(&mut self) -> Result<u64> {
        match self.short_varint() {
            Some(value) => Ok(value),
            None => self.long_varint(),
        }
    }

    /// A varint of at most seven bytes (49 bits), if enough bytes follow to read a whole word.
    #[inline]
    fn short_varint(&mut self) -> Option<u64> {
        const ENDS: u64 = 0x0080_8080_8080_8080;
        let word = u64::from_le_bytes(*self.bytes.get(self.at..)?.first_chunk()?);
        // A byte whose top bit is not set ends it.
        let ends = !word & ENDS;
        let bits = ends.trailing_zeros();
        if ends == 0 {
            return None;
        }
        let mut groups = word & (u64::MAX >> (63 - bits)) & 0x007f_7f7f_7f7f_7f7f;
        // Combines groups of seven bits to fourteen, these to twenty-eight, and these to the whole.
        groups = (groups & 0x007f_007f_007f_007f) | (groups & 0x0000_7f00_7f00_7f00) >> 1;
        groups = (groups & 0x0000_3fff_0000_3fff) | (groups & 0x3fff_0000_3fff_0000) >> 2;
        groups = (groups & 0x0000_0000_0fff_ffff) | (groups & 0x0fff_ffff_0000_0000) >> 4;
        self.at += bits as usize / 8 + 1;
        Some(groups)
    }

    /// A varint of any length, or an error if it is malformed.
    fn long_varint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0u64;
        for (i, &byte) in self.rest().iter().take(MAX_VARINT64_LEN).enumerate() {
            let group = u64::from(byte & 0x7f);
            if i == MAX_VARINT64_LEN - 1 && group > 1 {
                break;
            }
            value |= group << (7 * i);
            if byte & 0x80 == 0 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(Error::corruption(start, "malformed varint"))
    }

    /// A varint of at most 32 bits.
    ///
    /// # Errors
    /// Corruption if it is cut off or larger than `u32::MAX`.
    #[inline]
    pub fn varint32(&mut self) -> Result<u32> {
        // Lengths of keys and values are mostly one byte.
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u32::from(byte));
        }
        let start = self.at;
        u32::try_from(self.varint64()?)
            .map_err(|_| Error::corruption(start, "varint larger than 32 bits"))
    }

    /// A varint32 length and that many bytes.
    ///
    /// # Errors
    /// Corruption if either is cut off.
    pub fn length_prefixed(&mut self) -> Result<&'a [u8]> {
        let len = self.varint32()?;
        self.take(len as usize)
    }
}

/// Appends `value` as a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint32 length and the bytes.
///
/// # Panics
/// If `bytes` has 4 GiB or more, which callers must exclude.
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("length-prefixed slices are below 4 GiB");
    put_varint(out, u64::from(len));
    out.extend_from_slice(bytes);
}

/// Number of bytes that [`put_varint`] appends for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    // Nearly all lengths are small, so the branch is predicted well.
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => (u64::BITS - value.leading_zeros()).div_ceil(7) as usize,
    }
}

/// Zigzag code of a signed integer: small magnitudes become small codes.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

/// The little-endian u64 at the start of `bytes`.
///
/// # Panics
/// If `bytes` is shorter than eight bytes.
#[inline]
pub fn le64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// The little-endian u32 at the start of `bytes`.
///
/// # Panics
/// If `bytes` is shorter than four bytes.
#[inline]
pub fn le32(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_of_any_number_are_appended(
            mut out: Vec<u8>,
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let both = [&out[..], &bytes].concat();
            put_bytes(&mut out, &bytes);
            prop_assert_eq!(out, both);
        }

        #[test]
        fn varints_round_trip(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varint64()?, value);
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn varints_read_alike_with_bytes_behind_them_and_without(
            groups in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xff_u8], 0..12),
        ) {
            let (mut short, mut long) = (Cursor::new(&groups), Cursor::new(&groups));
            let value = short.varint64();
            prop_assert_eq!(&value, &long.long_varint());
            prop_assert_eq!(short.offset(), long.offset());
        }

        #[test]
        fn zigzag_round_trips(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn cursor_is_total(bytes: Vec<u8>) {
            let mut cursor = Cursor::new(&bytes);
            while cursor.length_prefixed().is_ok() && !cursor.is_empty() {}
            let _ = Cursor::new(&bytes).varint64();
            let _ = Cursor::new(&bytes).varint32();
            let _ = Cursor::new(&bytes).u64();
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        assert!(Cursor::new(&[0xff; 10]).varint64().is_err());
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&max).varint64(), Ok(u64::MAX));
        assert!(Cursor::new(&[0x80]).varint64().is_err());
        assert!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x10])
                .varint32()
                .is_err()
        );
    }
}
