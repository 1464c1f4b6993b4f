//! Formats of a column family's SST files: block-based table options, filter, prefix, compression.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, ChecksumType, DBCompressionType, DataBlockIndexType,
    Options, SliceTransform,
};

/// Raw deflate with a 16 KiB window: RocksDB's default (`CompressionOptions::window_bits`).
const WINDOW_BITS: i32 = -14;
/// RocksDB's `CompressionOptions::kDefaultCompressionLevel`.
const DEFAULT_COMPRESSION_LEVEL: i32 = 32767;
/// The newest `format_version` of RocksDB 11.12.
const NEWEST_FORMAT_VERSION: i32 = 8;
/// The `format_version` that RocksDB 11.12 writes by default.
const DEFAULT_FORMAT_VERSION: i32 = 7;

/// The filter in each SST file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filter {
    /// No filter block.
    None,
    /// A Bloom filter with this many bits per key.
    Bloom(f64),
    /// A Ribbon filter with this many Bloom-equivalent bits per key.
    Ribbon(f64),
}

impl Filter {
    /// Returns the filter with `bits` bits per key.
    #[must_use]
    pub fn with_bits(self, bits: f64) -> Self {
        match self {
            Self::None => Self::None,
            Self::Bloom(_) => Self::Bloom(bits),
            Self::Ribbon(_) => Self::Ribbon(bits),
        }
    }
}

/// The index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One block, binary search: RocksDB's default.
    Binary,
    /// Partitions under a top-level index.
    TwoLevel,
    /// Binary search with a hash index over prefixes beside it.
    Hash,
}

/// The prefix extractor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// `rocksdb.FixedPrefix.N`.
    Fixed(usize),
    /// `rocksdb.CappedPrefix.N`.
    Capped(usize),
}

/// Everything that determines the bytes of a column family's SST files, except their size.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// 2 to 8.
    pub format_version: i32,
    /// RocksDB's `ChecksumType`: 0 none, 1 CRC32c, 2 XXH32, 3 XXH64, 4 XXH3.
    pub checksum: u8,
    /// Target size of a data block, bytes, uncompressed.
    pub block_size: usize,
    /// Entries between restart points of a data block.
    pub restart_interval: i32,
    /// Entries between restart points of an index block.
    pub index_restart_interval: i32,
    /// The index.
    pub index: Index,
    /// A hash index at the end of each data block, with this many keys for each bucket.
    pub data_block_hash: Option<f64>,
    /// Keys and values in separate sections of a data block.
    pub separate_key_value: bool,
    /// Data blocks never straddle pages; only without compression.
    pub block_align: bool,
    /// The filter.
    pub filter: Filter,
    /// Whole keys in the filter.
    pub whole_key_filtering: bool,
    /// The filter in partitions; only with [`Index::TwoLevel`].
    pub partition_filters: bool,
    /// Bytes of a partition of index or filter.
    pub metadata_block_size: usize,
    /// The prefix extractor.
    pub prefix: Option<Prefix>,
    /// Compression of all levels but the bottommost.
    pub compression: DBCompressionType,
    /// Compression of the bottommost level, if it differs.
    pub bottommost: Option<DBCompressionType>,
    /// Dictionary size, bytes; 0 for none.
    pub dictionary_bytes: i32,
}

impl Default for TableShape {
    fn default() -> Self {
        Self {
            format_version: DEFAULT_FORMAT_VERSION,
            checksum: ChecksumType::XXH3 as u8,
            block_size: 4 << 10,
            restart_interval: 16,
            index_restart_interval: 1,
            index: Index::Binary,
            data_block_hash: None,
            separate_key_value: false,
            block_align: false,
            filter: Filter::None,
            whole_key_filtering: true,
            partition_filters: false,
            metadata_block_size: 4 << 10,
            prefix: None,
            compression: DBCompressionType::None,
            bottommost: None,
            dictionary_bytes: 0,
        }
    }
}

fn any_compression(rng: &mut StdRng) -> DBCompressionType {
    *[
        DBCompressionType::None,
        DBCompressionType::Snappy,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4hc,
        DBCompressionType::Zstd,
        DBCompressionType::Zlib,
    ]
    .choose(rng)
    .expect("not empty")
}

fn any_filter(rng: &mut StdRng) -> Filter {
    match rng.random_range(0..8) {
        0..3 => Filter::None,
        3..7 => Filter::Bloom(rng.random_range(1.0..20.0)),
        _ => Filter::Ribbon(rng.random_range(2.0..20.0)),
    }
}

fn any_prefix(rng: &mut StdRng) -> Option<Prefix> {
    match rng.random_range(0..4) {
        0 => Some(Prefix::Fixed(rng.random_range(1..10))),
        1 => Some(Prefix::Capped(rng.random_range(1..10))),
        _ => None,
    }
}

impl TableShape {
    /// Returns a shape that Rockmill is expected to accept: a plain or a two-level index, any
    /// checksum, compression, filter and block size.
    #[must_use]
    pub fn supported(rng: &mut StdRng) -> Self {
        Self {
            format_version: rng.random_range(2..=NEWEST_FORMAT_VERSION),
            checksum: rng.random_range(0..=ChecksumType::XXH3 as u8),
            block_size: *[256, 1 << 10, 4 << 10, 16 << 10, 64 << 10]
                .choose(rng)
                .expect("not empty"),
            restart_interval: *[1, 2, 3, 16, 64].choose(rng).expect("not empty"),
            index_restart_interval: *[1, 1, 4, 16].choose(rng).expect("not empty"),
            filter: any_filter(rng),
            whole_key_filtering: rng.random_bool(0.75),
            data_block_hash: rng
                .random_bool(0.2)
                .then(|| *[0.1, 0.75, 1.0, 3.0].choose(rng).expect("not empty")),
            prefix: any_prefix(rng),
            compression: any_compression(rng),
            bottommost: rng.random_bool(0.25).then(|| any_compression(rng)),
            ..Self::default()
        }
        .with_index(rng)
    }

    /// Draws the index.
    fn with_index(mut self, rng: &mut StdRng) -> Self {
        self.index = match rng.random_bool(0.3) {
            true => Index::TwoLevel,
            false => Index::Binary,
        };
        self.partition_filters = self.index == Index::TwoLevel && rng.random_bool(0.5);
        self.metadata_block_size = *[100, 500, 4 << 10].choose(rng).expect("not empty");
        self
    }

    /// Draws features of a supported shape that recorded jobs do not have.
    pub fn with_late_features(&mut self, rng: &mut StdRng) {
        let all = [Some(self.compression), self.bottommost];
        let has_lz4hc = all.contains(&Some(DBCompressionType::Lz4hc));
        if !has_lz4hc && rng.random_bool(0.2) {
            self.dictionary_bytes = *[100, 4 << 10].choose(rng).expect("not empty");
        }
        // RocksDB's hash index does not find keys that are shorter than a fixed prefix.
        let has_prefixes = matches!(self.prefix, Some(Prefix::Capped(_)));
        if has_prefixes && rng.random_bool(0.4) {
            self.with_hash_index();
        }
    }

    fn with_hash_index(&mut self) {
        self.index = Index::Hash;
        self.partition_filters = false;
        // BlockBasedTableFactory::InitializeOptions forces this.
        self.index_restart_interval = 1;
    }

    /// Returns any shape that RocksDB writes. Rockmill must read such files; whether it may write them depends on the
    /// options in force at the compaction.
    #[must_use]
    pub fn any(rng: &mut StdRng) -> Self {
        let mut shape = Self {
            format_version: rng.random_range(2..=NEWEST_FORMAT_VERSION),
            separate_key_value: rng.random_bool(0.15),
            block_align: rng.random_bool(0.1),
            dictionary_bytes: if rng.random_bool(0.15) { 4 << 10 } else { 0 },
            ..Self::supported(rng)
        };
        if shape.prefix.is_some() && rng.random_bool(0.2) {
            shape.with_hash_index();
        }
        if shape.block_align {
            // BlockBasedTableFactory::ValidateOptions: alignment and compression exclude each other.
            shape.compression = DBCompressionType::None;
            shape.bottommost = None;
            shape.dictionary_bytes = 0;
        }
        shape
    }

    /// Applies the shape to `options`.
    ///
    /// # Panics
    ///
    /// If RocksDB does not know the name of the prefix extractor.
    #[must_use]
    pub fn apply(&self, mut options: Options) -> Options {
        options = match self.prefix {
            None => options,
            Some(Prefix::Fixed(length)) => {
                options.set_prefix_extractor(SliceTransform::create_fixed_prefix(length));
                options
            }
            Some(Prefix::Capped(length)) => options
                .get_options_from_string(format!("prefix_extractor=rocksdb.CappedPrefix.{length}"))
                .expect("RocksDB knows capped prefixes"),
        };
        options.set_compression_type(self.compression);
        options.set_compression_options(
            WINDOW_BITS,
            DEFAULT_COMPRESSION_LEVEL,
            0,
            self.dictionary_bytes,
        );
        if let Some(bottommost) = self.bottommost {
            options.set_bottommost_compression_type(bottommost);
        }
        options.set_block_based_table_factory(&self.block_based());
        options
    }

    /// Returns the block-based table options of the shape.
    #[must_use]
    pub fn block_based(&self) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_format_version(self.format_version);
        table.set_checksum_type(match self.checksum {
            0 => ChecksumType::NoChecksum,
            1 => ChecksumType::CRC32c,
            2 => ChecksumType::XXHash,
            3 => ChecksumType::XXHash64,
            _ => ChecksumType::XXH3,
        });
        table.set_block_size(self.block_size);
        table.set_block_restart_interval(self.restart_interval);
        table.set_index_block_restart_interval(self.index_restart_interval);
        table.set_index_type(match self.index {
            Index::Binary => BlockBasedIndexType::BinarySearch,
            Index::TwoLevel => BlockBasedIndexType::TwoLevelIndexSearch,
            Index::Hash => BlockBasedIndexType::HashSearch,
        });
        if let Some(ratio) = self.data_block_hash {
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            table.set_data_block_hash_ratio(ratio);
        }
        table.set_separate_key_value_in_data_block(self.separate_key_value);
        table.set_block_align(self.block_align);
        match self.filter {
            Filter::None => {}
            Filter::Bloom(bits) => table.set_bloom_filter(bits, false),
            Filter::Ribbon(bits) => table.set_ribbon_filter(bits),
        }
        table.set_whole_key_filtering(self.whole_key_filtering);
        table.set_partition_filters(self.partition_filters);
        table.set_metadata_block_size(self.metadata_block_size);
        table
    }
}
