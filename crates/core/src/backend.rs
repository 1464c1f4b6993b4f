//! What the engine sees of a device.

use std::time::Duration;

use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_inline, rapidhash_v3_micro_inline};
use rockmill_format::handle::BlockHandle;
use rockmill_format::properties::TableProperties;
use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::error::Result;
use crate::io::SstSink;
use crate::plan::{Plan, Slice};
use crate::progress::Progress;
use crate::table::InputTable;

/// A slice of a job with all that is needed to work on it.
#[derive(Debug, Clone, Copy)]
pub struct SliceWork<'a> {
    /// The job's inputs, in the job's order.
    pub inputs: &'a [InputTable],
    /// What the job asks for.
    pub plan: &'a Plan,
    /// Which keys.
    pub slice: &'a Slice,
    /// Bytes of each input to hold at most, unless a single block is larger.
    pub read_ahead_bytes: usize,
    /// Checked at least once a block.
    pub cancel: &'a CancelToken,
    /// Told how far the slice is, if someone wants to know.
    pub progress: Option<&'a Progress<'a>>,
}

/// A device that compacts slices.
///
/// The output is a pure function of job and inputs: every backend writes the same bytes. A `Run` is
/// the survivors of a slice in whatever form the backend likes, lazily computed or resident on the
/// device; nothing but the backend looks into it.
pub trait Backend: Send + Sync {
    /// Survivors of one slice.
    type Run<'a>
    where
        Self: 'a;

    /// Name for statistics: `cpu`, `cuda:0`.
    fn name(&self) -> &str;

    /// Looks whether the backend does such jobs, before any slice is begun.
    ///
    /// # Errors
    /// Device if it does not, or not yet.
    fn accepts(&self, plan: &Plan, inputs: &[InputTable]) -> Result<()> {
        let _ = (plan, inputs);
        Ok(())
    }

    /// Host memory in bytes that a slice of `plan` over `inputs` takes at most.
    fn slice_memory_bytes(
        &self,
        plan: &Plan,
        inputs: &[InputTable],
        read_ahead_bytes: usize,
    ) -> u64;

    /// Reads, decodes, merges and retains.
    ///
    /// # Errors
    /// Any error of [`crate::ErrorKind`]; a lazy backend may report those of reading later.
    fn survivors<'a>(&'a self, work: SliceWork<'a>) -> Result<Self::Run<'a>>;

    /// Writes the survivors as SST files and says what was done.
    ///
    /// # Errors
    /// Any error of [`crate::ErrorKind`]. Files begun in `sink` are of no use then.
    fn write_ssts<'a>(&'a self, run: Self::Run<'a>, sink: &mut dyn SstSink) -> Result<SliceReport>;
}

/// What became of a slice.
#[derive(Debug, Default, Clone)]
pub struct SliceReport {
    /// The files, in key order.
    pub files: Vec<OutputFile>,
    /// Entries read inside the slice, by input.
    pub entries_read: Vec<u64>,
    /// Of those, tombstones.
    pub tombstones_read: u64,
    /// Bytes of internal keys read.
    pub key_bytes_read: u64,
    /// Bytes of values read.
    pub value_bytes_read: u64,
    /// Bytes read from input files.
    pub bytes_read: u64,
    /// Entries dropped because a newer one hides them.
    pub entries_replaced: u64,
    /// Tombstones dropped because nothing is left for them to hide, as far as RocksDB counts them.
    pub tombstones_dropped: u64,
    /// Entries written.
    pub entries_written: u64,
    /// Sum of [`entry_hash`] over all entries read.
    pub hash_in: u64,
    /// Sum over those written, as they were read.
    pub hash_kept: u64,
    /// Sum over those dropped.
    pub hash_dropped: u64,
    /// Whether the backend verified the files itself: it decoded the finished data blocks again by
    /// other code than made them, found the content that was meant, and checked on the host each block
    /// checksum of the bytes that it handed to the sink. If not, the engine reads the files back.
    pub verified: bool,
    /// Where the time went, in the order of the stages; empty if the backend does not measure.
    pub stages: Vec<StageTime>,
    /// Processor time of threads other than the caller's that worked on the slice.
    pub cpu_elsewhere: Duration,
}

/// Time and bytes of one stage, of one or many slices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTime {
    /// Name of the stage.
    pub stage: &'static str,
    /// What it used.
    pub resource: Resource,
    /// Seconds from its start to its end, waiting for the resource included, summed over the threads
    /// that took part.
    pub seconds: f64,
    /// Bytes that it moved.
    pub bytes: u64,
}

impl StageTime {
    /// Adds stage by stage, by name.
    pub fn add_all(sums: &mut Vec<Self>, stages: &[Self]) {
        for stage in stages {
            match sums.iter_mut().find(|sum| sum.stage == stage.stage) {
                Some(sum) => {
                    sum.seconds += stage.seconds;
                    sum.bytes += stage.bytes;
                }
                None => sums.push(*stage),
            }
        }
    }
}

/// What a stage keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Host processors and page cache.
    Host,
    /// The link to the device.
    ToDevice,
    /// The link back.
    FromDevice,
    /// The device's memory and processors.
    Device,
}

impl Resource {
    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::ToDevice => "to device",
            Self::FromDevice => "from device",
            Self::Device => "device",
        }
    }
}

/// A finished output file.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputFile {
    /// Number within the job; see [`SstSink::create`].
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// First internal key.
    pub smallest: Vec<u8>,
    /// Last internal key.
    pub largest: Vec<u8>,
    /// As stored in the file.
    pub properties: TableProperties,
    /// Oldest ancestor time in seconds since 1970.
    pub oldest_ancester_time: u64,
    /// RocksDB's hash over all entries, if the plan asks for it, else 0.
    pub paranoid_hash: u64,
    /// Unmasked CRC-32C of the file, if the plan asks for it.
    pub file_checksum: Option<u32>,
    /// What a reader of the file must find.
    pub content: ContentHash,
    /// [`index_hash`] that the index must have.
    pub index_hash: u64,
}

/// Hash of an index: the user key of each block's separator, and where the block is.
pub fn index_hash<'a>(blocks: impl Iterator<Item = (&'a [u8], BlockHandle)>) -> u64 {
    let mut hash = ContentHash::default();
    for (separator, handle) in blocks {
        let size = handle.size.to_le_bytes();
        hash.push(entry_hash(kv_hash(separator, &size), handle.offset));
    }
    hash.hash
}

/// Hash of a key and its value without the tag.
#[inline]
pub fn kv_hash(user_key: &[u8], value: &[u8]) -> u64 {
    const KEY_TURN: u32 = 29;
    content_hash(user_key)
        .rotate_left(KEY_TURN)
        .wrapping_add(content_hash(value))
}

/// Rapidhash V3 micro with seed 0: the quickest there is on a thread of its own for keys and values of up to
/// some hundred bytes, on a CPU as on a GPU. It is without the last step, which spreads bits that [`entry_hash`] spreads
/// anyway; that step would also tell lengths below four bytes apart, which are added instead.
#[inline]
fn content_hash(bytes: &[u8]) -> u64 {
    /// Up to here the variants of V3 are one function, and of the plain one this part is inlined.
    const SHORT_BYTES: usize = 16;
    let hash = if bytes.len() <= SHORT_BYTES {
        rapidhash_v3_inline::<false, false, false>(bytes, &DEFAULT_RAPID_SECRETS)
    } else {
        rapidhash_v3_micro_inline::<false, false>(bytes, &DEFAULT_RAPID_SECRETS)
    };
    hash.wrapping_add(bytes.len() as u64)
}

/// Hash of an entry.
#[inline]
pub fn entry_hash(kv_hash: u64, tag: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (kv_hash ^ tag.wrapping_mul(ODD)).wrapping_mul(ODD);
    mixed ^ (mixed >> 32)
}

/// An [`entry_hash`] at a position of a sequence, from 0.
#[inline]
pub fn placed_hash(entry_hash: u64, position: u64) -> u64 {
    const STEP: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    let mixed = (entry_hash ^ position.wrapping_mul(STEP)).wrapping_mul(ODD);
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD)
}

/// Hash of a sequence of entries, in which order matters: the sum of all [`entry_hash`]es, each mixed
/// with its position, so that thousands of threads can take in entries at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ContentHash {
    hash: u64,
    entries: u64,
}

impl ContentHash {
    /// The hash of `entries` entries of which a device found the sum of [`placed_hash`]es.
    pub fn from_sum(sum: u64, entries: u64) -> Self {
        Self { hash: sum, entries }
    }

    /// Takes in the next entry by its [`entry_hash`].
    #[inline]
    pub fn push(&mut self, entry_hash: u64) {
        let placed = placed_hash(entry_hash, self.entries);
        self.hash = self.hash.wrapping_add(placed);
        self.entries += 1;
    }

    /// Number of entries taken in.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_hashes_notice_order_count_and_each_part() {
        let a = entry_hash(kv_hash(b"a", b"1"), 9);
        let b = entry_hash(kv_hash(b"b", b"2"), 9);
        let of = |entries: &[u64]| {
            let mut hash = ContentHash::default();
            entries.iter().for_each(|&e| hash.push(e));
            hash
        };
        assert_eq!(of(&[a, b]), of(&[a, b]));
        assert_ne!(of(&[a, b]), of(&[b, a]));
        assert_ne!(of(&[a]), of(&[a, a]));
        let placed = placed_hash(a, 0).wrapping_add(placed_hash(b, 1));
        assert_eq!(of(&[a, b]), ContentHash::from_sum(placed, 2));
        assert_ne!(a, entry_hash(kv_hash(b"a", b"1"), 8));
        assert_ne!(kv_hash(b"ab", b"c"), kv_hash(b"a", b"bc"));
    }

    #[test]
    fn content_hashes_of_like_bytes_differ_at_every_length() {
        for byte in [0, 1, b'a', u8::MAX] {
            let bytes = [byte; 300];
            let hashes = |of: fn(&[u8]) -> u64| {
                let all = (0..=bytes.len()).map(|len| of(&bytes[..len]));
                all.collect::<std::collections::BTreeSet<_>>().len()
            };
            let keys = hashes(|bytes| entry_hash(kv_hash(bytes, b""), 9));
            let values = hashes(|bytes| entry_hash(kv_hash(b"", bytes), 9));
            assert_eq!((keys, values), (bytes.len() + 1, bytes.len() + 1), "{byte}");
        }
    }

    #[test]
    fn content_hashes_notice_every_flipped_bit() {
        let bytes: Vec<u8> = (0..300_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in [
            1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 33, 80, 81, 100, 161, 256, 300,
        ] {
            let mut bytes = bytes[..len].to_vec();
            let hash = content_hash(&bytes);
            for bit in 0..8 * len {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(content_hash(&bytes), hash, "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
