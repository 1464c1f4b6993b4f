//! Which bit of what a task makes on the device is altered, and when.

/// A bit of what a task makes on the device; `byte` counts from the region's start and goes round at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which part.
    pub region: Region,
    /// Which byte of it.
    pub byte: u64,
    /// Which bit of the byte, below 8.
    pub bit: u32,
}

/// Parts of what a task makes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// Entries of the first data block.
    Entries,
    /// The second data block, which the host does not decompress for itself.
    Second,
    /// The number of restarts at the end of the first data block, and the last restart.
    Restarts,
    /// Type and checksum behind the first data block.
    Trailer,
    /// What follows the data blocks of the first file: its filter, if there is one, then the filter's
    /// metadata.
    Filter,
    /// The index block of the first file, with its trailer.
    Index,
    /// The internal keys at the first file's ends, as they are handed over by themselves.
    Edges,
    /// The sizes of the first file, which the host gets before it decides where the file goes.
    Sizes,
    /// Results of the verification of the first file.
    Found,
    /// The record of the second data block's first key, while the index is measured and not longer.
    NextKey,
    /// Rows before they are handed over.
    Rows,
}

/// Regions of which `faulty.cpp` tells where they are, in the order of its own list.
pub(super) const TOLD: [Region; 6] = [
    Region::Index,
    Region::Edges,
    Region::Sizes,
    Region::Found,
    Region::NextKey,
    Region::Rows,
];

/// When a bit is altered; the first two in the order of `faulty.cpp:Moment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// In the device's memory, before a data block or an index block gets its checksum, a key is read, or
    /// rows are copied back.
    Unsealed,
    /// In the device's memory, before it verifies what it has made.
    Finished,
    /// In the host's memory, after the copy back.
    CopiedBack,
}

/// Position of a region among those that are told of.
pub(super) fn told(region: Region) -> Option<usize> {
    TOLD.iter().position(|&told| told == region)
}
