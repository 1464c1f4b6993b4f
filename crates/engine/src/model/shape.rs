//! What a slice's time depends on.

use rockmill_core::InputTable;
use rockmill_format::compression::CompressionType;
use serde::{Deserialize, Serialize};

/// Uncompressed bytes of a data block of usual size, and bytes of a tag behind each user key.
const BLOCK_BYTES: f64 = 4096.0;
const TAG_BYTES: f64 = 8.0;

/// Keys of so many bytes are compared as two words.
const WORD_KEY_BYTES: f64 = 16.0;

/// A slice before it is run: what its inputs' indexes and properties tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceShape {
    /// Stored bytes of the inputs' data blocks.
    pub bytes_in: u64,
    /// Entries of the inputs.
    pub entries: u64,
    /// Bytes of their internal keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Inputs.
    pub runs: u32,
    /// Stored bytes to expect of the outputs.
    pub bytes_out: u64,
    /// How blocks are stored, in inputs and outputs.
    pub compression: CompressionType,
}

/// A quantity that some part of the work grows with. Costs are seconds for one of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// The slice, with its one or two output files.
    Slice,
    /// An input.
    Run,
    /// An entry of the inputs.
    Entry,
    /// The same, times the binary logarithm of the number of runs.
    EntryLog2Runs,
    /// An entry whose key is longer than two words.
    LongKeyEntry,
    /// A byte of an internal key of the inputs.
    KeyByte,
    /// A byte of a value of the inputs.
    ValueByte,
    /// A stored byte of the inputs.
    ByteIn,
    /// An entry of the outputs.
    EntryOut,
    /// An uncompressed byte of the outputs.
    RawByteOut,
    /// A data block of the outputs.
    BlockOut,
    /// A stored byte of the outputs.
    ByteOut,
    /// An uncompressed byte of Snappy blocks read.
    SnappyIn,
    /// Of Snappy blocks written.
    SnappyOut,
    /// An entry of the outputs in Snappy blocks: what entries share is found one by one.
    SnappyEntryOut,
    /// An uncompressed byte of zlib blocks read.
    ZlibIn,
    /// Of zlib blocks written.
    ZlibOut,
    /// An entry of the outputs in zlib blocks: what entries share is found one by one.
    ZlibEntryOut,
    /// An uncompressed byte of LZ4 blocks read.
    Lz4In,
    /// Of LZ4 blocks written.
    Lz4Out,
    /// An entry of the outputs in LZ4 blocks: what entries share is found one by one.
    Lz4EntryOut,
    /// An uncompressed byte of LZ4HC blocks read.
    Lz4hcIn,
    /// Of LZ4HC blocks written.
    Lz4hcOut,
    /// An entry of the outputs in LZ4HC blocks: what entries share is found one by one.
    Lz4hcEntryOut,
    /// An uncompressed byte of ZSTD blocks read.
    ZstdIn,
    /// Of ZSTD blocks written.
    ZstdOut,
    /// An entry of the outputs in ZSTD blocks: what entries share is found one by one.
    ZstdEntryOut,
}

impl Term {
    /// All, in the order of their definition.
    pub const ALL: [Self; 27] = [
        Self::Slice,
        Self::Run,
        Self::Entry,
        Self::EntryLog2Runs,
        Self::LongKeyEntry,
        Self::KeyByte,
        Self::ValueByte,
        Self::ByteIn,
        Self::EntryOut,
        Self::RawByteOut,
        Self::BlockOut,
        Self::ByteOut,
        Self::SnappyIn,
        Self::SnappyOut,
        Self::SnappyEntryOut,
        Self::ZlibIn,
        Self::ZlibOut,
        Self::ZlibEntryOut,
        Self::Lz4In,
        Self::Lz4Out,
        Self::Lz4EntryOut,
        Self::Lz4hcIn,
        Self::Lz4hcOut,
        Self::Lz4hcEntryOut,
        Self::ZstdIn,
        Self::ZstdOut,
        Self::ZstdEntryOut,
    ];

    /// Seconds beyond which no machine takes for one of it.
    pub fn most_seconds(self) -> f64 {
        const FILES: f64 = 1.0;
        const ENTRIES: f64 = 1e-2;
        /// At 100 KB a second.
        const BYTES: f64 = 1e-5;
        match self {
            Self::Slice | Self::Run => FILES,
            Self::Entry
            | Self::EntryLog2Runs
            | Self::LongKeyEntry
            | Self::EntryOut
            | Self::BlockOut
            | Self::SnappyEntryOut
            | Self::ZlibEntryOut
            | Self::Lz4EntryOut
            | Self::Lz4hcEntryOut
            | Self::ZstdEntryOut => ENTRIES,
            Self::KeyByte
            | Self::ValueByte
            | Self::ByteIn
            | Self::RawByteOut
            | Self::ByteOut
            | Self::SnappyIn
            | Self::SnappyOut
            | Self::ZlibIn
            | Self::ZlibOut
            | Self::Lz4In
            | Self::Lz4Out
            | Self::Lz4hcIn
            | Self::Lz4hcOut
            | Self::ZstdIn
            | Self::ZstdOut => BYTES,
        }
    }
}

/// Terms of blocks that are compressed so: a byte read, a byte and an entry written.
fn codec_terms(kind: CompressionType) -> Option<[Term; 3]> {
    Some(match kind {
        CompressionType::None => return None,
        CompressionType::Snappy => [Term::SnappyIn, Term::SnappyOut, Term::SnappyEntryOut],
        CompressionType::Zlib => [Term::ZlibIn, Term::ZlibOut, Term::ZlibEntryOut],
        CompressionType::Lz4 => [Term::Lz4In, Term::Lz4Out, Term::Lz4EntryOut],
        CompressionType::Lz4hc => [Term::Lz4hcIn, Term::Lz4hcOut, Term::Lz4hcEntryOut],
        CompressionType::Zstd => [Term::ZstdIn, Term::ZstdOut, Term::ZstdEntryOut],
    })
}

impl SliceShape {
    /// Of all that inputs hold, no entry of which is dropped.
    pub fn of_inputs(tables: &[InputTable], compression: CompressionType) -> Self {
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).fold(0, u64::saturating_add);
        let bytes_in = sum(|table| table.meta.properties.data_size);
        Self {
            bytes_in,
            entries: sum(|table| table.meta.properties.num_entries),
            key_bytes: sum(|table| table.meta.properties.raw_key_size),
            value_bytes: sum(|table| table.meta.properties.raw_value_size),
            runs: tables.len() as u32,
            bytes_out: bytes_in,
            compression,
        }
    }

    /// How much of a term the slice has. None falls when the slice grows.
    pub fn amount(&self, term: Term) -> f64 {
        let entries = self.entries as f64;
        let raw = (self.key_bytes + self.value_bytes) as f64;
        let [entries_out, raw_out] = [entries, raw].map(|all| all * self.kept());
        let runs = f64::from(self.runs.max(1));
        match term {
            Term::Slice => 1.0,
            Term::Run => runs,
            Term::Entry => entries,
            Term::EntryLog2Runs => entries * runs.log2(),
            Term::LongKeyEntry => {
                match self.key_bytes as f64 > entries * (WORD_KEY_BYTES + TAG_BYTES) {
                    true => entries,
                    false => 0.0,
                }
            }
            Term::KeyByte => self.key_bytes as f64,
            Term::ValueByte => self.value_bytes as f64,
            Term::ByteIn => self.bytes_in as f64,
            Term::EntryOut => entries_out,
            Term::RawByteOut => raw_out,
            // An entry that is larger than a block has one of its own.
            Term::BlockOut => entries_out.min(raw_out / BLOCK_BYTES),
            Term::ByteOut => self.bytes_out as f64,
            codec => match codec_terms(self.compression) {
                Some([read, ..]) if codec == read => raw,
                Some([_, written, _]) if codec == written => raw_out,
                Some([.., entry]) if codec == entry => entries_out,
                _ => 0.0,
            },
        }
    }

    /// Share of the input that survives: the mean of what bytes say, since all that is known of the output
    /// is its size.
    fn kept(&self) -> f64 {
        (self.bytes_out as f64 / self.bytes_in.max(1) as f64).min(1.0)
    }

    /// The same slice, `times` as large.
    #[must_use]
    pub fn scaled(&self, times: f64) -> Self {
        let scale = |amount: u64| (amount as f64 * times) as u64;
        Self {
            bytes_in: scale(self.bytes_in),
            entries: scale(self.entries),
            key_bytes: scale(self.key_bytes),
            value_bytes: scale(self.value_bytes),
            bytes_out: scale(self.bytes_out),
            ..*self
        }
    }
}
