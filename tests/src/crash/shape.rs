//! The shape of a seed's database: small files, so that jobs run all the time.

use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill::DeviceList;
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, Options,
};

use crate::table::{Filter, TableShape};
use crate::tree::TreeShape;

/// Names of the column families.
pub const FAMILIES: [&str; 3] = [DEFAULT_COLUMN_FAMILY_NAME, "second", "third"];

/// Bits per key of every filter; passed to the service, because OPTIONS files do not contain them.
pub const FILTER_BITS_PER_KEY: f64 = 10.0;

/// Number of uncompressed families if there is a device: GPUs leave compression to the CPU.
const DEVICE_FAMILIES: usize = FAMILIES.len() - 1;

const BACKGROUND_JOBS: i32 = 4;
/// Number of files in L0 that triggers a compaction.
const L0_TRIGGER: i32 = 2;

/// Shapes of all families.
#[derive(Clone, Debug)]
pub struct DatabaseShape {
    families: Vec<(TableShape, TreeShape)>,
}

impl DatabaseShape {
    /// Returns the shape of `seed` for processes that compact on `device`.
    #[must_use]
    pub fn new(seed: u64, device: DeviceList) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut families = FAMILIES.map(|_| (table(&mut rng), tree(&mut rng)));
        if !device.is_cpu_alone() {
            for (table, _) in &mut families[..DEVICE_FAMILIES] {
                table.compression = DBCompressionType::None;
                table.bottommost = None;
            }
        }
        Self {
            families: families.into(),
        }
    }

    /// Opens the database in `dir` with these shapes added to `options`; creates it if necessary.
    ///
    /// # Errors
    ///
    /// RocksDB's error, as text.
    pub fn open(&self, mut options: Options, dir: &Path) -> Result<DB, String> {
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        options.set_level_zero_file_num_compaction_trigger(L0_TRIGGER);
        let families = FAMILIES.iter().zip(&self.families);
        let descriptors = families.map(|(name, (table, tree))| {
            let mut options = table.apply(options.clone());
            tree.apply(&mut options);
            ColumnFamilyDescriptor::new(*name, options)
        });
        DB::open_cf_descriptors(&options, dir, descriptors)
            .map_err(|e| format!("open {}: {e}", dir.display()))
    }
}

fn table(rng: &mut StdRng) -> TableShape {
    TableShape {
        // Never without a checksum, so that damage is detected.
        checksum: rng.random_range(1..=4),
        filter: if rng.random_bool(0.7) {
            Filter::Bloom(FILTER_BITS_PER_KEY)
        } else {
            Filter::None
        },
        ..TableShape::supported(rng)
    }
}

fn tree(rng: &mut StdRng) -> TreeShape {
    let target_file_size = *[32 << 10, 64 << 10, 128 << 10]
        .choose(rng)
        .expect("not empty");
    TreeShape {
        universal: rng.random_bool(0.25),
        dynamic_level_bytes: rng.random_bool(0.5),
        write_buffer_size: 128 << 10,
        target_file_size,
        level_base: 4 * target_file_size,
        max_compaction_bytes: 25 * target_file_size,
        ..TreeShape::default()
    }
}
