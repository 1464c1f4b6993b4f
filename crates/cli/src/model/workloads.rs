//! The workloads that the model is held against. Calibration has none of these shapes.

use rockmill_engine::model::Workload;
use rockmill_format::compression::CompressionType::{
    self, Lz4, None as Stored, Snappy, Zlib, Zstd,
};

type Shape = (usize, usize, u32, u32, CompressionType, u64);

/// Bytes of key and value, versions of so many runs, compression, megabytes of keys and values.
const SHAPES: [Shape; 44] = [
    (4, 4, 1, 2, Stored, 4),
    (4, 16, 2, 8, Stored, 8),
    (8, 0, 1, 4, Stored, 6),
    (8, 8, 2, 4, Stored, 8),
    (8, 32, 2, 8, Stored, 16),
    (8, 32, 1, 16, Stored, 8),
    (8, 64, 8, 8, Stored, 16),
    (8, 100, 1, 3, Stored, 16),
    (8, 200, 4, 20, Stored, 32),
    (8, 400, 2, 2, Stored, 24),
    (10, 20, 3, 6, Stored, 8),
    (12, 50, 1, 10, Stored, 12),
    (12, 300, 6, 12, Stored, 32),
    (16, 16, 1, 4, Stored, 8),
    (16, 32, 4, 8, Stored, 16),
    (16, 64, 2, 2, Stored, 16),
    (16, 64, 1, 20, Stored, 16),
    (16, 128, 8, 40, Stored, 32),
    (16, 256, 4, 8, Stored, 64),
    (16, 512, 1, 4, Stored, 32),
    (16, 512, 4, 4, Stored, 64),
    (16, 800, 2, 30, Stored, 48),
    (16, 1024, 2, 8, Stored, 64),
    (16, 1024, 1, 12, Stored, 32),
    (16, 2000, 5, 10, Stored, 64),
    (16, 3000, 1, 6, Stored, 48),
    (16, 4096, 4, 8, Stored, 96),
    (20, 40, 1, 2, Stored, 12),
    (24, 100, 2, 16, Stored, 16),
    (32, 8, 4, 8, Stored, 12),
    (32, 256, 1, 8, Stored, 32),
    (40, 60, 2, 4, Stored, 16),
    (48, 1000, 3, 24, Stored, 48),
    (64, 32, 1, 6, Stored, 12),
    (64, 200, 8, 16, Stored, 32),
    (16, 64, 2, 4, Lz4, 8),
    (16, 256, 4, 8, Lz4, 16),
    (8, 500, 1, 4, Lz4, 16),
    (24, 100, 1, 10, Lz4, 8),
    (16, 64, 4, 8, Zstd, 6),
    (16, 256, 1, 2, Zstd, 8),
    (32, 700, 2, 20, Zstd, 12),
    (16, 256, 2, 8, Snappy, 12),
    (16, 300, 2, 4, Zlib, 3),
];

/// Positions of those that are run on all processors at once as well.
const AT_ONCE: [usize; 4] = [4, 14, 18, 22];

/// A quick look takes every so many.
const QUICK_STEP: usize = 9;

/// A workload, and whether it is also run on all processors at once.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    pub workload: Workload,
    pub at_once: bool,
}

/// All workloads, or a few.
pub fn chosen(quick: bool) -> Vec<Chosen> {
    let step = if quick { QUICK_STEP } else { 1 };
    let all = SHAPES.iter().enumerate().step_by(step);
    all.map(
        |(i, &(key_bytes, value_bytes, versions, runs, compression, megabytes))| Chosen {
            workload: Workload {
                key_bytes,
                value_bytes,
                runs,
                versions,
                compression,
                raw_bytes: megabytes * 1_000_000,
            },
            at_once: AT_ONCE.contains(&i) && !quick,
        },
    )
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thirty_for_every_device_and_they_span_what_is_promised() {
        let all = chosen(false);
        let stored = |w: &&Chosen| w.workload.compression == Stored;
        assert!(all.iter().filter(stored).count() >= 30);
        let span = |of: fn(&Workload) -> u64| {
            let values: Vec<u64> = all.iter().map(|w| of(&w.workload)).collect();
            (values.iter().copied().min(), values.iter().copied().max())
        };
        assert_eq!(span(|w| w.key_bytes as u64), (Some(4), Some(64)));
        assert_eq!(span(|w| w.value_bytes as u64), (Some(0), Some(4096)));
        assert_eq!(span(|w| u64::from(w.versions)), (Some(1), Some(8)));
        assert_eq!(span(|w| u64::from(w.runs)), (Some(2), Some(40)));
        assert!(all.iter().all(|w| w.workload.versions <= w.workload.runs));
        assert!((3..10).contains(&chosen(true).len()));
    }
}
