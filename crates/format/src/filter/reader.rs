//! Queries a filter of any kind (`filter_policy.cc:BuiltinFilterPolicy::GetBuiltinFilterBitsReader`).

use super::METADATA_LEN;
use super::bloom::{self, LINE_LEN};
use super::legacy::{LegacyBloom, bloom_hash};
use super::ribbon::Ribbon;
use crate::coding::le32;
use crate::error::{Error, Result};
use crate::xxph3::hash64;

/// First byte of a Ribbon filter's metadata.
const RIBBON_MARKER: u8 = 0xfe;
/// Maximum probes of a legacy filter; larger values of that byte are markers.
const MAX_LEGACY_PROBES: u8 = 127;
/// Numbers of probes that a FastLocalBloom filter may have.
const BLOOM_PROBES: std::ops::RangeInclusive<u8> = 1..=30;

/// Kind of a filter, by its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// FastLocalBloom.
    Bloom,
    /// Standard128 Ribbon.
    Ribbon,
    /// Bloom filter of format_version below 5.
    Legacy,
    /// Answers "maybe" to everything: reserved or future metadata, which RocksDB treats in the same way.
    AlwaysTrue,
    /// Answers "no" to everything: only the metadata, as if no key had been added.
    AlwaysFalse,
}

/// Contents of a legacy filter's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyLayout {
    /// Bytes of a line, a power of two: a cache line of the machine that wrote the filter.
    pub line_len: usize,
    /// Probes of a key, 1 to 127; they follow the configured bits per key.
    pub num_probes: u8,
}

#[derive(Debug, Clone)]
enum Bits<'a> {
    Bloom {
        lines: &'a [[u8; LINE_LEN]],
        probes: u8,
    },
    Ribbon(Ribbon<'a>),
    Legacy(LegacyBloom<'a>),
    AlwaysTrue,
    AlwaysFalse,
}

/// A filter in a payload.
#[derive(Debug, Clone)]
pub struct FilterReader<'a> {
    bits: Bits<'a>,
}

impl<'a> FilterReader<'a> {
    /// Reads the metadata at the end of a filter block's payload.
    ///
    /// # Errors
    /// Corruption if the payload has 4 GiB or more, or claims to be a Bloom filter without any line.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        if u32::try_from(payload.len()).is_err() {
            return Err(Error::corruption(0, "filter of 4 GiB or more"));
        }
        let bits = match payload.split_last_chunk::<METADATA_LEN>() {
            None | Some(([], _)) => Bits::AlwaysFalse,
            Some((bits, metadata)) => match metadata[0] {
                bloom::MARKER => parse_bloom(bits, metadata)?,
                RIBBON_MARKER => parse_ribbon(bits, metadata),
                probes @ 1..=MAX_LEGACY_PROBES => {
                    LegacyBloom::new(bits, le32(&metadata[1..]), probes)
                        .map_or(Bits::AlwaysTrue, Bits::Legacy)
                }
                _ => Bits::AlwaysTrue,
            },
        };
        Ok(Self { bits })
    }

    /// Kind of the filter.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        match self.bits {
            Bits::Bloom { .. } => FilterKind::Bloom,
            Bits::Ribbon(_) => FilterKind::Ribbon,
            Bits::Legacy(_) => FilterKind::Legacy,
            Bits::AlwaysTrue => FilterKind::AlwaysTrue,
            Bits::AlwaysFalse => FilterKind::AlwaysFalse,
        }
    }

    /// Layout of a legacy filter; `None` for other kinds.
    #[must_use]
    pub fn legacy_layout(&self) -> Option<LegacyLayout> {
        match &self.bits {
            Bits::Legacy(legacy) => Some(legacy.layout()),
            _ => None,
        }
    }

    /// Whether this user key or prefix may have been added; never false for an added one.
    #[must_use]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        match &self.bits {
            Bits::Legacy(_) => self.may_contain_hash(u64::from(bloom_hash(key))),
            _ => self.may_contain_hash(hash64(key)),
        }
    }

    /// [`FilterReader::may_contain`] by the key's hash in [`super::FilterBuilder`].
    #[must_use]
    #[inline]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        match &self.bits {
            Bits::Bloom { lines, probes } => bloom::may_match(lines, u32::from(*probes), hash),
            Bits::Ribbon(ribbon) => ribbon.may_match(hash),
            Bits::Legacy(legacy) => legacy.may_match(hash as u32),
            Bits::AlwaysTrue => true,
            Bits::AlwaysFalse => false,
        }
    }
}

/// Byte 1 is the sub-implementation. Byte 2 is the probes and, in its top three bits, the line length. All other bytes
/// must be 0.
fn parse_bloom<'a>(bits: &'a [u8], metadata: &[u8; METADATA_LEN]) -> Result<Bits<'a>> {
    let &[_, 0, probes, 0, 0] = metadata else {
        return Ok(Bits::AlwaysTrue);
    };
    if !BLOOM_PROBES.contains(&probes) {
        return Ok(Bits::AlwaysTrue);
    }
    let lines = bits.as_chunks().0;
    if lines.is_empty() {
        return Err(Error::corruption(0, "Bloom filter shorter than one line"));
    }
    Ok(Bits::Bloom { lines, probes })
}

fn parse_ribbon<'a>(bits: &'a [u8], metadata: &[u8; METADATA_LEN]) -> Bits<'a> {
    let &[_, seed, low, middle, high] = metadata;
    let num_blocks = u32::from_le_bytes([low, middle, high, 0]);
    Ribbon::new(bits, num_blocks, seed).map_or(Bits::AlwaysTrue, Bits::Ribbon)
}
