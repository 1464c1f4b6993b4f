//! The bit of a task's data on the device to alter, and when.

/// A bit of a task's data on the device; `byte` counts from the region's start and wraps at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which part.
    pub region: Region,
    /// Number of the byte.
    pub byte: u64,
    /// Number of the bit in the byte, below 8.
    pub bit: u32,
}

/// Regions of a task's data on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// Entries of the first data block.
    Entries,
    /// The second data block, which the host does not decompress for itself.
    Second,
    /// The number of restarts at the end of the first data block, and the last restart.
    Restarts,
    /// Type and checksum behind the payload of the first data block.
    Trailer,
    /// The part behind the data blocks of the first file: its filter, if there is one, then the filter's metadata.
    Filter,
    /// The index block of the first file, with its trailer.
    Index,
    /// The first file's first and last internal key, which are copied back separately.
    Edges,
    /// The sizes of the first file, which the host receives before it chooses the file's place.
    Sizes,
    /// Results of the verification of the first file.
    Found,
    /// The record of the second data block's first key, only while the index is measured.
    NextKey,
    /// Rows before they are passed on.
    Rows,
    /// Values that are merged of operands.
    Merged,
}

/// Regions whose addresses `faulty.cpp` reports, in the order of its own list.
pub(super) const TOLD: [Region; 7] = [
    Region::Index,
    Region::Edges,
    Region::Sizes,
    Region::Found,
    Region::NextKey,
    Region::Rows,
    Region::Merged,
];

/// The time at which a bit is altered; the first two in the order of `faulty.cpp:Moment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// In the device's memory, before a data block or an index block gets its checksum, a key is read, or
    /// rows are copied back.
    Unsealed,
    /// In the device's memory, before it verifies its output.
    Finished,
    /// In the host's memory, after the copy back.
    CopiedBack,
}

/// Position of a region among the reported ones.
pub(super) fn told(region: Region) -> Option<usize> {
    TOLD.iter().position(|&told| told == region)
}
