//! The LSM tree of a column family: style, levels and sizes.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rust_rocksdb::{DBCompactionStyle, Options, SstPartitionerFactory};

/// Minimum number of levels of a generated tree: L0, one in between, and the bottom.
const FEWEST_LEVELS: i32 = 3;
/// Maximum number of levels: RocksDB's default `num_levels`.
const MAX_LEVELS: i32 = 7;

/// Style, levels and sizes of a tree. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct TreeShape {
    /// Universal style instead of leveled.
    pub universal: bool,
    /// `num_levels`.
    pub levels: i32,
    /// `level_compaction_dynamic_level_bytes`.
    pub dynamic_level_bytes: bool,
    /// `write_buffer_size`.
    pub write_buffer_size: usize,
    /// `target_file_size_base`.
    pub target_file_size: u64,
    /// `max_bytes_for_level_base`.
    pub level_base: u64,
    /// `max_bytes_for_level_multiplier`.
    pub level_multiplier: f64,
    /// `max_compaction_bytes`.
    pub max_compaction_bytes: u64,
    /// Length of the fixed prefix by which an SST partitioner separates keys.
    pub partition_bytes: Option<usize>,
    /// Window, trigger and ratio of a `CompactOnDeletionCollector`.
    pub compact_on_deletion: Option<(usize, usize, f64)>,
}

impl Default for TreeShape {
    fn default() -> Self {
        Self {
            universal: false,
            levels: MAX_LEVELS,
            dynamic_level_bytes: true,
            write_buffer_size: 1 << 20,
            target_file_size: 1 << 20,
            level_base: 4 << 20,
            level_multiplier: 4.0,
            max_compaction_bytes: 25 << 20,
            partition_bytes: None,
            compact_on_deletion: None,
        }
    }
}

impl TreeShape {
    /// Draws a small tree with files and levels of a few KiB to a few MiB. Little data then makes several levels,
    /// several files per level, and grandparents that affect the output.
    #[must_use]
    pub fn random(rng: &mut StdRng) -> Self {
        let target_file_size = *[16 << 10, 64 << 10, 256 << 10, 2 << 20]
            .choose(rng)
            .expect("not empty");
        Self {
            universal: rng.random_bool(0.25),
            levels: rng.random_range(FEWEST_LEVELS..=MAX_LEVELS),
            dynamic_level_bytes: rng.random_bool(0.4),
            write_buffer_size: *[64 << 10, 256 << 10, 2 << 20]
                .choose(rng)
                .expect("not empty"),
            target_file_size,
            level_base: target_file_size * rng.random_range(1..6),
            level_multiplier: rng.random_range(2.0..8.0),
            max_compaction_bytes: target_file_size * rng.random_range(2..26),
            partition_bytes: rng.random_bool(0.1).then(|| rng.random_range(0..10)),
            compact_on_deletion: rng
                .random_bool(0.2)
                .then(|| (rng.random_range(0..300), rng.random_range(0..60), 0.3)),
        }
    }

    /// Applies the shape to `options`.
    pub fn apply(&self, options: &mut Options) {
        options.set_compaction_style(if self.universal {
            DBCompactionStyle::Universal
        } else {
            DBCompactionStyle::Level
        });
        options.set_num_levels(self.levels);
        options.set_level_compaction_dynamic_level_bytes(self.dynamic_level_bytes);
        options.set_write_buffer_size(self.write_buffer_size);
        options.set_target_file_size_base(self.target_file_size);
        options.set_max_bytes_for_level_base(self.level_base);
        options.set_max_bytes_for_level_multiplier(self.level_multiplier);
        options.set_max_compaction_bytes(self.max_compaction_bytes);
        if let Some(bytes) = self.partition_bytes {
            let factory = SstPartitionerFactory::fixed_prefix(bytes);
            options.set_sst_partitioner_factory(&factory);
        }
        if let Some((window, trigger, ratio)) = self.compact_on_deletion {
            options.add_compact_on_deletion_collector_factory(window, trigger, ratio);
        }
    }
}
