//! The slices of calibration. None has a shape that `rockmill model` compares.

use rockmill_format::compression::CompressionType::{
    self, Lz4, Lz4hc, None as Stored, Snappy, Zlib, Zstd,
};

use crate::model::shape::Term;
use crate::model::workload::Workload;

const KB: u64 = 1000;

/// Sizes of key and value, versions of so many runs, compression, KB.
pub type Shape = (usize, usize, u32, u32, CompressionType, u64);

/// Each makes some terms large beside the others, and takes some two milliseconds: a few rounds fit into a second, beside
/// those of a GPU.
pub const CPU_SHAPES: [Shape; 31] = [
    (8, 32, 1, 2, Stored, 400),
    (8, 32, 4, 8, Stored, 1000),
    (4, 0, 1, 8, Stored, 100),
    (16, 0, 8, 40, Stored, 500),
    (16, 256, 1, 8, Stored, 2000),
    (16, 256, 2, 2, Stored, 2000),
    (16, 256, 1, 2, Stored, 60),
    (16, 100, 1, 40, Stored, 300),
    (16, 1024, 4, 8, Stored, 8000),
    (16, 4096, 1, 2, Stored, 3000),
    (16, 4096, 8, 40, Stored, 3000),
    (40, 100, 1, 40, Stored, 800),
    (24, 64, 4, 8, Stored, 750),
    (64, 512, 8, 40, Stored, 2500),
    (64, 0, 2, 2, Stored, 500),
    (8, 32, 1, 2, Lz4, 200),
    (16, 200, 2, 4, Lz4, 1000),
    (16, 1024, 1, 2, Lz4, 1000),
    (16, 1024, 4, 8, Lz4, 2500),
    (8, 32, 1, 2, Zstd, 125),
    (16, 200, 2, 4, Zstd, 600),
    (16, 1024, 1, 2, Zstd, 600),
    (16, 1024, 4, 8, Zstd, 800),
    (8, 32, 1, 2, Snappy, 200),
    (16, 1024, 1, 2, Snappy, 1200),
    (16, 1024, 4, 8, Snappy, 1200),
    (8, 32, 1, 2, Zlib, 40),
    (16, 1024, 1, 2, Zlib, 60),
    (16, 1024, 4, 8, Zlib, 120),
    (16, 256, 1, 2, Lz4hc, 120),
    (16, 1024, 4, 8, Lz4hc, 240),
];

/// The same for GPUs, which need larger slices to be busy: some seven milliseconds each. None is much below the size from
/// which on a GPU wins: what keeps one thread busy alone has a smaller constant cost, and would mislead about those.
pub const GPU_SHAPES: [Shape; 6] = [
    (16, 100, 1, 40, Stored, 3000),
    (8, 32, 4, 8, Stored, 16_000),
    (8, 32, 1, 2, Stored, 7000),
    (16, 1024, 4, 8, Stored, 32_000),
    (16, 1024, 1, 2, Stored, 14_000),
    (40, 100, 8, 40, Stored, 24_000),
];

/// What a slice on a GPU costs beside its kernels, on the whole and of the host: so few that noise in a few slices is not
/// taken for the cost of a run or of a long key.
pub const GPU_TERMS: [Term; 5] = [
    Term::Slice,
    Term::Entry,
    Term::ByteIn,
    Term::EntryOut,
    Term::ByteOut,
];

/// Positions in [`CPU_SHAPES`] of slices that are run on all processors at once: all entries, all bytes.
pub const CROWDED: [usize; 2] = [1, 8];

/// Position of the one that processors are tried with: the quickest.
pub const TRIED: usize = 6;

/// Position of the one that runs before each of a GPU's: it passes the most bytes, more than second-level caches hold.
pub const BEFORE_GPU: usize = 8;

/// Positions in [`GPU_SHAPES`] of slices that are run on a GPU at once: one that keeps kernels busy for long beside the
/// host, many entries, and one that does for which files are.
pub const GPU_CROWDED: [usize; 2] = [1, 3];

/// A shape's slice.
pub fn workload(shape: &Shape) -> Workload {
    let &(key_bytes, value_bytes, versions, runs, compression, kilobytes) = shape;
    Workload {
        key_bytes,
        value_bytes,
        runs,
        versions,
        compression,
        raw_bytes: kilobytes * KB,
    }
}
