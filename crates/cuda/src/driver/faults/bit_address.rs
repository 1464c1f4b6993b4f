//! The bit of a task's data on the device to alter, and when.

use super::super::ffi;

/// A bit of a task's data on the device; `byte` counts from the region's start and wraps at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitAddress {
    /// The part.
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

/// The time at which a bit is altered.
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

/// Number of regions that `faulty.cpp` reports.
pub(super) const REGIONS: usize = ffi::REGION_MERGED as usize + 1;

/// The number of a region in the reports of `faulty.cpp`; `None` for one that it does not report.
pub(super) fn told(region: Region) -> Option<u32> {
    match region {
        Region::Index => Some(ffi::REGION_INDEX),
        Region::Edges => Some(ffi::REGION_EDGES),
        Region::Sizes => Some(ffi::REGION_SIZES),
        Region::Found => Some(ffi::REGION_FOUND),
        Region::NextKey => Some(ffi::REGION_NEXT_KEY),
        Region::Rows => Some(ffi::REGION_ROWS),
        Region::Merged => Some(ffi::REGION_MERGED),
        Region::Entries | Region::Second | Region::Restarts | Region::Trailer | Region::Filter => {
            None
        }
    }
}
