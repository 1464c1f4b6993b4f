//! The regions of a file.

use rockmill_core::read_block;
use rockmill_core::{Error, ErrorKind, InputTable, Result};
use rockmill_format::filter::FilterReader;
use rockmill_format::footer::FOOTER_SIZE;
use rockmill_format::handle::BlockHandle;
use rockmill_format::table::{decode_filter_partitions, names};
use rockmill_terminal::output;
use serde::Serialize;

use super::{NotShown, not_shown};
use crate::sst::{Sst, end_of, understood};

/// A range of the file with one purpose; trailers belong to their blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Its purpose.
    pub name: String,
    /// Offset of its first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// More about it; may be empty.
    pub note: String,
}

/// All regions of a file by offset, and the first damage found while reading them.
#[derive(Debug)]
pub struct Layout {
    /// Regions, which cover the whole file.
    pub regions: Vec<Region>,
    /// Error of the first damaged block.
    pub damage: Option<Error>,
    /// Errors of blocks that are not understood.
    pub unknown: Vec<Error>,
}

impl Layout {
    /// Returns the parts of a file's index and meta blocks that are not shown.
    pub fn not_shown(&self, sst: &Sst) -> NotShown {
        let index = sst.unknown.iter().map(|why| not_shown("data blocks", why));
        let others = self.unknown.iter();
        let others = others.map(|why| not_shown("the contents of a meta block", why));
        index.chain(others).collect()
    }
}

/// Finds all regions of a file.
pub fn layout(Sst { table, unknown }: &Sst) -> Layout {
    let index_is_whole = unknown.is_empty();
    let meta = &table.meta;
    let (mut damage, mut unknown) = (None, Vec::new());
    let mut regions: Vec<Region> = Vec::new();
    let data: Vec<_> = meta.index.iter().map(|entry| entry.handle).collect();
    regions.extend(blocks("data blocks", "block", &data));
    regions.extend(blocks(
        "index partitions",
        "partition",
        &meta.index_partitions,
    ));
    let index = if meta.index_partitions.is_empty() {
        "index"
    } else {
        "top-level index"
    };
    regions.push(block(index, meta.index_handle, String::new()));
    for (name, &handle) in &meta.metaindex {
        if handle != meta.index_handle {
            match understood(add_meta_block(table, name, handle, &mut regions)) {
                Ok(described) => unknown.extend(described.err()),
                Err(error) => damage = damage.or(Some(error)),
            }
        }
    }
    let gap = match index_is_whole {
        true => "unused",
        false => "not known",
    };
    let count = output::count(meta.metaindex.len(), "block named", "blocks named");
    regions.push(block("metaindex", meta.footer.metaindex, count));
    regions.push(Region {
        name: "footer".to_owned(),
        offset: meta.file_size.saturating_sub(FOOTER_SIZE as u64),
        size: FOOTER_SIZE as u64,
        note: String::new(),
    });
    regions.sort_by_key(|region| region.offset);
    Layout {
        regions: with_gaps(regions, gap),
        damage,
        unknown,
    }
}

/// Adds the region of a meta block, even if the block cannot be read.
fn add_meta_block(
    table: &InputTable,
    name: &[u8],
    handle: BlockHandle,
    regions: &mut Vec<Region>,
) -> Result<()> {
    let label = match name {
        names::FULL_FILTER => "filter",
        names::PARTITIONED_FILTER => "top-level filter index",
        names::DICTIONARY => "compression dictionary",
        names::PROPERTIES => "properties",
        names::RANGE_DELETIONS => "range deletions",
        _ => "",
    };
    let label = if label.is_empty() {
        output::escape(name)
    } else {
        label.to_owned()
    };
    regions.push(block(&label, handle, String::new()));
    let at = regions.len() - 1;
    let described = describe(table, name, handle, regions);
    regions[at].note = match &described {
        Ok(note) => note.clone(),
        Err(error) if matches!(error.kind, ErrorKind::Declined(_)) => "not known".to_owned(),
        Err(_) => "damaged".to_owned(),
    };
    described.map(drop)
}

/// Returns a note on a meta block. Adds the regions of a partitioned filter's partitions.
fn describe(
    table: &InputTable,
    name: &[u8],
    handle: BlockHandle,
    regions: &mut Vec<Region>,
) -> Result<String> {
    let fail = |e: rockmill_format::Error| Error::format(table.file.name(), e.at(handle.offset));
    match name {
        names::FULL_FILTER => {
            let payload = read_block(table, handle)?;
            let filter = FilterReader::parse(&payload).map_err(fail)?;
            Ok(format!("{:?}", filter.kind()))
        }
        names::PARTITIONED_FILTER => {
            let payload = read_block(table, handle)?;
            let partitions = decode_filter_partitions(&payload, &table.meta).map_err(fail)?;
            let handles: Vec<_> = partitions.iter().map(|entry| entry.handle).collect();
            regions.extend(blocks("filter partitions", "partition", &handles));
            Ok(String::new())
        }
        _ => Ok(String::new()),
    }
}

fn block(name: &str, handle: BlockHandle, note: String) -> Region {
    Region {
        name: name.to_owned(),
        offset: handle.offset,
        size: end_of(handle) - handle.offset,
        note,
    }
}

/// Combines consecutive blocks into one region; `None` if there are no blocks.
fn blocks(name: &str, one: &str, handles: &[BlockHandle]) -> Option<Region> {
    let (first, last) = (handles.first()?, handles.last()?);
    let size = end_of(*last).saturating_sub(first.offset);
    let stored: u64 = handles
        .iter()
        .map(|&handle| end_of(handle) - handle.offset)
        .fold(0, u64::saturating_add);
    let plural = if handles.len() == 1 { "" } else { "s" };
    let mut note = format!("{} {one}{plural}", handles.len());
    if let Some(padding) = size.checked_sub(stored).filter(|&padding| padding > 0) {
        note.push_str(&format!(", {padding} B between them"));
    }
    Some(Region {
        name: name.to_owned(),
        offset: first.offset,
        size,
        note,
    })
}

/// Adds regions named `gap` for ranges that no region covers, such as padding.
fn with_gaps(regions: Vec<Region>, gap: &str) -> Vec<Region> {
    let mut out = Vec::new();
    let mut end = 0;
    for region in regions {
        if region.offset > end {
            out.push(Region {
                name: gap.to_owned(),
                offset: end,
                size: region.offset - end,
                note: String::new(),
            });
        }
        end = end.max(region.offset.saturating_add(region.size));
        out.push(region);
    }
    out
}
