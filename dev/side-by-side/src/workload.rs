//! Keys and values of a measured database, and their notation on the command line.

use std::fmt;
use std::str::FromStr;

use rust_rocksdb::DBCompressionType;
use serde::{Deserialize, Serialize};

/// Keys differ in their first eight bytes, and RocksDB's users seldom have longer ones than the maximum here.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
const MAX_VALUE_BYTES: usize = 1 << 20;
const MAX_ENTRIES: u64 = 10_000_000_000;
/// Total size of keys and values if the number of entries is not given.
const USUAL_RAW_BYTES: u64 = 1_000_000_000;

/// Compression of all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Uncompressed blocks.
    None,
    /// LZ4.
    Lz4,
    /// LZ4HC.
    Lz4hc,
    /// ZSTD.
    Zstd,
    /// Snappy.
    Snappy,
}

impl Compression {
    const ALL: [Self; 5] = [Self::None, Self::Lz4, Self::Lz4hc, Self::Zstd, Self::Snappy];

    /// Name in workloads.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Lz4hc => "lz4hc",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
        }
    }

    /// RocksDB's type of the compression.
    pub fn of_rocksdb(self) -> DBCompressionType {
        match self {
            Self::None => DBCompressionType::None,
            Self::Lz4 => DBCompressionType::Lz4,
            Self::Lz4hc => DBCompressionType::Lz4hc,
            Self::Zstd => DBCompressionType::Zstd,
            Self::Snappy => DBCompressionType::Snappy,
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|c| c.name() == text);
        named.ok_or_else(|| "a compression is none, lz4, lz4hc, zstd or snappy".to_owned())
    }
}

/// Sizes and number of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// Number of entries.
    pub entries: u64,
}

impl Workload {
    /// Number of leading random bytes of a value; the rest is zero. With compression, half of a value is compressible.
    pub fn random_value_bytes(&self) -> usize {
        match self.compression {
            Compression::None => self.value_bytes,
            _ => self.value_bytes / 2,
        }
    }

    /// Bytes of a key with its value.
    pub fn entry_bytes(&self) -> usize {
        self.key_bytes + self.value_bytes
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compression = self.compression.name();
        let (key, value, entries) = (self.key_bytes, self.value_bytes, self.entries);
        write!(f, "{key}x{value}:{compression}:{entries} entries")
    }
}

/// Parses `KEYxVALUE[:compression][:entries]`.
impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!(
                "a workload is KEYxVALUE[:none|lz4|lz4hc|zstd|snappy][:ENTRIES], such as 16x256:lz4:40M, \
                 with keys of {} to {} bytes, values of at most {MAX_VALUE_BYTES} bytes and 1 to \
                 {MAX_ENTRIES} entries, K for thousands and M for millions of them",
                KEY_BYTES.start(),
                KEY_BYTES.end()
            )
        })
    }
}

fn parse(text: &str) -> Option<Workload> {
    let mut parts = text.split(':').peekable();
    let (key, value) = parts.next()?.split_once('x')?;
    let key_bytes = number(key).map(|n| n as usize)?;
    let value_bytes = number(value).map(|n| n as usize)?;
    if !KEY_BYTES.contains(&key_bytes) || value_bytes > MAX_VALUE_BYTES {
        return None;
    }
    let compression: Option<Compression> = parts.peek().and_then(|name| name.parse().ok());
    if compression.is_some() {
        parts.next();
    }
    let entries = match parts.next() {
        Some(entries) => scaled(entries)?,
        None => USUAL_RAW_BYTES / (key_bytes + value_bytes) as u64,
    };
    let is_all = parts.next().is_none();
    (is_all && (1..=MAX_ENTRIES).contains(&entries)).then_some(Workload {
        key_bytes,
        value_bytes,
        compression: compression.unwrap_or(Compression::None),
        entries,
    })
}

/// Parses digits only: `parse` would accept a sign.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// Parses a number in ones, thousands (`K`) or millions (`M`).
fn scaled(text: &str) -> Option<u64> {
    for (suffix, scale) in [('K', 1_000), ('M', 1_000_000)] {
        if let Some(digits) = text.strip_suffix(suffix) {
            return number(digits)?.checked_mul(scale);
        }
    }
    number(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<Workload>().expect(text).to_string()
    }

    #[test]
    fn compression_and_entries_may_be_left_out() {
        assert_eq!(shown("16x256:lz4:40M"), "16x256:lz4:40000000 entries");
        assert_eq!(shown("16x256:lz4hc:1K"), "16x256:lz4hc:1000 entries");
        assert_eq!(shown("8x32:20K"), "8x32:none:20000 entries");
        assert_eq!(shown("8x0:zstd:7"), "8x0:zstd:7 entries");
        assert_eq!(shown("64x1048576:snappy:1"), "64x1048576:snappy:1 entries");
        assert_eq!(shown("8x32"), "8x32:none:25000000 entries");
        assert_eq!(shown("16x100:lz4"), "16x100:lz4:8620689 entries");
    }

    #[test]
    fn whatever_else_is_refused_with_the_grammar() {
        for text in [
            "",
            "16",
            "x",
            "16x",
            "x256",
            "7x32",
            "65x32",
            "16x1048577",
            "+16x32",
            "16x32:",
            "16x32:gzip",
            "16x32:LZ4",
            "16x32:1M:lz4",
            "16x32:lz4:0",
            "16x32:lz4:1G",
            "16x32:lz4:1k",
            "16x32:lz4:K",
            "16x32:lz4:-1",
            "16x32:lz4:10001M",
            "16x32:lz4:18446744073709551615M",
            "16x32:lz4:1M:",
            "16x32:lz4:lz4",
            "99999999999999999999x32",
        ] {
            let refused = text.parse::<Workload>().expect_err(text);
            assert!(refused.contains("KEYxVALUE["), "{refused}");
        }
    }

    #[test]
    fn half_of_a_value_compresses_if_something_compresses_it() {
        let random = |text: &str| {
            let workload: Workload = text.parse().expect(text);
            workload.random_value_bytes()
        };
        assert_eq!(random("8x100:none:1"), 100);
        assert_eq!(random("8x100:zstd:1"), 50);
    }
}
