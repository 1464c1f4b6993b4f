//! Groups of decoded entries: those that a task finds in the cache, and those that it keeps there.
//!
//! A file has a group for each range of its bytes of one size: the blocks that begin there. A task that wants the first
//! block of a group reads all of them, and keeps the group. So pieces of a scan leave each group cached, however many of them
//! have keys of it. A scan of few keys uses no groups, so it neither reads nor reserves memory for many others.

use std::ops::Range;

use rockmill_core::{Cacheable, Error, ErrorKind, InputTable, KeyRange, Purpose, Request, Result};

use super::host_blocks::is_for_host;
use super::input::{Input, PADDING};
use super::size::is_wide;
use super::state::ReadState;
use crate::cache::{FileCache, Group, GroupName, GroupShape};
use crate::driver::CopyKind;
use crate::driver::ffi::{HashPart, PlaceArgs, ScanTotals};
use crate::memory::{Allocation, DeviceBuffer, Workspace};
use crate::scan::Returned;

/// A task that wants a smaller share of a group's blocks than 1/`LEAST_SHARE` does not use the group.
const LEAST_SHARE: u64 = 64;

/// How a task uses groups.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// Bytes of a file for which a group stands.
    pub bytes: u64,
    /// Whether some key may be too long for its record. Then all groups of the task have the bytes of all keys.
    pub is_wide: bool,
}

impl Grouping {
    /// That of a scan with a cache.
    pub fn of(request: &Request<'_>, cache: &FileCache) -> Option<Self> {
        let groups = matches!(request.purpose, Purpose::Scan(_)) && cache.is_on();
        groups.then(|| Self {
            bytes: cache.group_bytes(),
            is_wide: is_wide(request),
        })
    }
}

/// A cached group that a task uses.
#[derive(Debug)]
pub struct UsedGroup {
    pub of: Cacheable,
    pub name: GroupName,
    pub group: Group,
    /// Number of its run, and of the task's blocks in front of it.
    pub run: usize,
    pub before: usize,
}

/// A group whose blocks a task reads, all of them.
#[derive(Debug)]
pub struct NewGroup {
    of: Cacheable,
    name: GroupName,
    /// End of the file's last data block.
    data_bytes: u64,
    /// Its blocks among those of the task.
    blocks: Range<usize>,
}

/// A source of blocks of a table: a group that is cached, or blocks to read.
#[derive(Debug)]
pub enum BlockSource {
    Cached {
        of: Cacheable,
        name: GroupName,
        group: Group,
    },
    Blocks {
        blocks: Range<usize>,
        /// The group that these are, if they are all of it.
        name: Option<GroupName>,
    },
}

/// The blocks of a table for which a group stands.
fn blocks_of(table: &InputTable, number: u64, bytes: u64) -> Range<usize> {
    let before = |number: u64| {
        let blocks = &table.meta.index;
        blocks.partition_point(|entry| entry.handle.offset / bytes < number)
    };
    before(number)..before(number + 1)
}

/// The selected blocks of a group, and all of its blocks if a task that selects these uses the group.
fn blocks_in(
    table: &InputTable,
    selected: &Range<usize>,
    number: u64,
    bytes: u64,
) -> (Range<usize>, Option<Range<usize>>) {
    let whole = blocks_of(table, number, bytes);
    let wanted = whole.start.max(selected.start)..whole.end.min(selected.end);
    let is_used = wanted.len() as u64 * LEAST_SHARE >= whole.len() as u64;
    (wanted, is_used.then_some(whole))
}

/// The groups that have some of the blocks; `None` if the table has no groups.
fn numbers(table: &InputTable, blocks: &Range<usize>, bytes: u64) -> Option<[u64; 2]> {
    let is_cacheable = table.cacheable().is_some() && !is_for_host(table) && !blocks.is_empty();
    let number = |block: usize| table.meta.index[block].handle.offset / bytes;
    is_cacheable.then(|| [number(blocks.start), number(blocks.end - 1)])
}

/// The blocks of a table that a task with this range may use, those of the groups that it uses included.
pub fn blocks_used(
    table: &InputTable,
    range: &KeyRange,
    grouping: Option<Grouping>,
) -> Range<usize> {
    let blocks = table.blocks_in_range(range);
    let groups = grouping.and_then(|by| Some((by, numbers(table, &blocks, by.bytes)?)));
    match groups {
        Some((by, [first, last])) => {
            let used = |number| {
                let (wanted, whole) = blocks_in(table, &blocks, number, by.bytes);
                whole.unwrap_or(wanted)
            };
            used(first).start..used(last).end
        }
        None => blocks,
    }
}

/// Stored bytes from the first to the last of some blocks, trailers included.
pub fn stored_bytes(table: &InputTable, blocks: &Range<usize>) -> u64 {
    let blocks = &table.meta.index[blocks.clone()];
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
        return 0;
    };
    let end = last.handle.checked_end().unwrap_or(u64::MAX);
    end.saturating_sub(first.handle.offset)
}

/// Returns the sources of a table's blocks in a range, in their order.
pub fn block_sources(
    table: &InputTable,
    range: &KeyRange,
    groups: Option<(&FileCache, Grouping)>,
) -> Vec<BlockSource> {
    let selected = table.blocks_in_range(range);
    let found = groups.and_then(|(cache, by)| {
        let numbers = numbers(table, &selected, by.bytes)?;
        Some((cache, by, *table.cacheable()?, numbers))
    });
    let Some((cache, by, of, [first, last])) = found else {
        return vec![BlockSource::Blocks {
            blocks: selected,
            name: None,
        }];
    };
    let source = |number| {
        let name = GroupName {
            global_sequence: table.global_sequence(),
            number,
            is_wide: by.is_wide,
        };
        let (wanted, whole) = blocks_in(table, &selected, number, by.bytes);
        let is_used = whole.is_some();
        let all = whole.filter(|whole| whole.start == wanted.start);
        let is_all = all.is_some();
        let blocks = all.unwrap_or(wanted);
        let found = is_used.then(|| cache.find_group(&of, &name, stored_bytes(table, &blocks)));
        match found.flatten() {
            Some(group) => BlockSource::Cached { of, name, group },
            None => BlockSource::Blocks {
                blocks,
                name: is_all.then_some(name),
            },
        }
    };
    // A large block may leave numbers without blocks.
    let numbers = (first..=last).filter(|&number| !blocks_of(table, number, by.bytes).is_empty());
    numbers.map(source).collect()
}

impl NewGroup {
    /// The group of a table that has these blocks of the task.
    pub fn new(table: &InputTable, name: GroupName, blocks: Range<usize>) -> Option<Self> {
        Some(Self {
            of: *table.cacheable()?,
            name,
            data_bytes: table.meta.index.last()?.handle.checked_end()?,
            blocks,
        })
    }
}

/// Entries of the task in front of each block and of each cached group, which the order of the files gives; and the ends of
/// runs, of which the first is 0.
#[derive(Debug, Default)]
pub struct Places {
    /// One more than blocks.
    pub blocks: Vec<u32>,
    pub groups: Vec<u32>,
    pub runs: Vec<u32>,
}

impl Places {
    /// The places for blocks with these sums of entries. `None` if these exceed 32 bits.
    pub fn of(input: &Input<'_>, starts: &[u32]) -> Option<Self> {
        let mut places = Self {
            runs: vec![0],
            ..Self::default()
        };
        let (mut at, mut block) = (0u64, 0);
        let mut groups = input.used.iter().peekable();
        for (run, &(_, end)) in input.runs.iter().enumerate() {
            loop {
                let next = |used: &&UsedGroup| used.run == run && used.before == block;
                while let Some(used) = groups.next_if(next) {
                    places.groups.push(u32::try_from(at).ok()?);
                    at += used.group.shape.entries;
                }
                if block == end {
                    break;
                }
                places.blocks.push(u32::try_from(at).ok()?);
                at += u64::from(starts[block + 1].checked_sub(starts[block])?);
                block += 1;
            }
            places.runs.push(u32::try_from(at).ok()?);
        }
        places.blocks.push(u32::try_from(at).ok()?);
        Some(places)
    }

    /// The stretches of entries of blocks with these sums of entries.
    pub fn decoded(&self, starts: &[u32]) -> Vec<Range<usize>> {
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for (place, sums) in self.blocks.iter().zip(starts.windows(2)) {
            let first = *place as usize;
            let end = first + (sums[1] - sums[0]) as usize;
            match stretches.last_mut() {
                Some(last) if last.end == first => last.end = end,
                _ => stretches.push(first..end),
            }
        }
        stretches
    }
}

/// The sums of memory, as `scan_hash` computes them. Waits for all work before.
///
/// # Errors
/// Device.
fn sums<'a>(
    ws: &Workspace,
    memory: impl ExactSizeIterator<Item = (&'a Allocation, GroupShape)>,
) -> Result<Vec<u64>> {
    let n = memory.len();
    let mut totals = DeviceBuffer::new(&ws.arena);
    totals.upload(&vec![ScanTotals::default(); n], &ws.stream)?;
    let parts = (0..).zip(memory).map(|(total, (memory, shape))| HashPart {
        bytes: memory.as_ptr(),
        len: shape.bytes(),
        position: 0,
        total,
    });
    let parts: Vec<_> = parts.collect();
    // SAFETY: a group has the bytes of its shape, and a total.
    unsafe { (ws.stages()).scan_hash(parts.as_ptr(), n as u64, totals.as_ptr())? };
    let totals = totals.download(0, n, &ws.stream)?;
    Ok(totals.iter().map(|total| total.hash).collect())
}

/// Drops the used groups whose bytes have changed from the cache.
///
/// # Errors
/// Verification if there are some; Device.
pub fn verify(ws: &Workspace, cache: &FileCache, used: &[UsedGroup]) -> Result<()> {
    if used.is_empty() {
        return Ok(());
    }
    let memory = used
        .iter()
        .map(|used| (&*used.group.memory, used.group.shape));
    let sums = sums(ws, memory)?;
    let changed = used.iter().zip(sums);
    let changed: Vec<_> = changed
        .filter(|(used, sum)| used.group.sum != *sum)
        .map(|(used, _)| used)
        .collect();
    for used in &changed {
        cache.group_mismatch(&used.of.identity, &used.name);
    }
    match changed.is_empty() {
        true => Ok(()),
        false => {
            let what = "cached columns have changed in the device's memory";
            Err(Error::new(ErrorKind::Verification, what))
        }
    }
}

/// Places the entries of the used groups among those of the task.
///
/// # Errors
/// Device.
pub fn place(read: &ReadState, used: &[UsedGroup], places: &[u32]) -> Result<()> {
    let buffers = &read.buffers;
    let part = |(used, &first): (&UsedGroup, &u32)| {
        let (shape, first) = (used.group.shape, first as usize);
        let memory = used.group.memory.as_ptr();
        let at = |offset: u64| memory.wrapping_add(offset as usize);
        let distance = |offset: u64, from: *mut u8| {
            let place = at(offset).addr() as u64;
            place.wrapping_sub(from.addr() as u64)
        };
        let mut args = PlaceArgs {
            keys: memory.cast(),
            values: at(shape.values_at()).cast(),
            hashes: at(shape.hashes_at()).cast(),
            n: shape.entries,
            to_keys: buffers.keys.as_ptr().wrapping_add(first),
            to_values: buffers.values.as_ptr().wrapping_add(first),
            to_hashes: buffers.hashes.as_ptr().wrapping_add(first),
            entry_shift: first as u64,
            value_shift: distance(shape.block_bytes_at(), buffers.arena.as_ptr()),
            ..PlaceArgs::none()
        };
        if shape.key_bytes.is_some() {
            args.key_at = at(shape.key_at()).cast();
            args.to_key_at = buffers.key_at.as_ptr().wrapping_add(first);
            args.key_shift = distance(shape.key_bytes_at(), read.key_memory());
        }
        args
    };
    let parts: Vec<_> = used.iter().zip(places).map(part).collect();
    // SAFETY: the buffers have room for all entries, and the groups have those of their shapes.
    unsafe { (read.ws.stages()).place_entries(parts.as_ptr(), parts.len() as u64) }
}

impl PlaceArgs {
    /// No entries.
    fn none() -> Self {
        Self {
            keys: std::ptr::null(),
            values: std::ptr::null(),
            hashes: std::ptr::null(),
            key_at: std::ptr::null(),
            n: 0,
            to_keys: std::ptr::null_mut(),
            to_values: std::ptr::null_mut(),
            to_hashes: std::ptr::null_mut(),
            to_key_at: std::ptr::null_mut(),
            entry_shift: 0,
            value_shift: 0,
            key_shift: 0,
        }
    }
}

/// Keeps the new groups of a task, as far as there is room. `starts` are sums of the blocks' entries.
///
/// # Errors
/// Device.
pub fn keep(
    read: &ReadState,
    cache: &FileCache,
    input: &Input<'_>,
    places: &Places,
    starts: &[u32],
) -> Result<()> {
    let len = input.blocks.len() + 1;
    let (buffers, stream) = (&read.buffers, &read.ws.stream);
    let raw = match input.is_compressed {
        true => buffers.raw_offsets.download(0, len, stream)?,
        false => Vec::new(),
    };
    let key_starts = match input.has_wide_groups {
        true => buffers.key_starts.download(0, len, stream)?,
        false => Vec::new(),
    };
    let mut returned = Returned::new(read)?;
    returned.values(read, &buffers.raw_offsets, &raw)?;
    returned.values(read, &buffers.key_starts, &key_starts)?;
    returned.check(read)?;
    let (mut made, mut queued) = (Vec::new(), Ok(()));
    for new in &input.new_groups {
        if cache.has_group(&new.of.identity, &new.name) {
            continue;
        }
        let Range { start, end } = new.blocks;
        let from = GroupParts {
            first: places.blocks[start] as usize,
            entries: u64::from(starts[end] - starts[start]),
            keys: (input.has_wide_groups).then(|| key_starts[start]..key_starts[end]),
            bytes: match input.is_compressed {
                true => PADDING + raw[start]..PADDING + raw[end],
                false => {
                    let last = &input.blocks[end - 1];
                    input.blocks[start].at..last.at + u64::from(last.raw_size)
                }
            },
        };
        let Some(memory) = cache.take_for_group(&new.of, &from.shape()) else {
            break;
        };
        queued = from.copy(read, &memory);
        made.push((new, memory, from.shape()));
        if queued.is_err() {
            break;
        }
    }
    let summed = queued.and_then(|()| {
        let memory = made.iter().map(|(_, memory, shape)| (memory, *shape));
        sums(&read.ws, memory)
    });
    // Otherwise memory could be given to others while it is written.
    let done = stream.synchronize();
    if done.is_err() {
        made.iter().for_each(|(_, memory, _)| cache.leak(memory));
    }
    done?;
    for ((new, memory, shape), sum) in made.into_iter().zip(summed?) {
        let group = Group {
            memory: memory.into(),
            shape,
            sum,
        };
        cache.keep_group(&new.of, new.data_bytes, new.name, group);
    }
    Ok(())
}

/// The parts of a task that become a group.
struct GroupParts {
    /// The first entry, and their number.
    first: usize,
    entries: u64,
    /// Bytes of keys, in a wide task.
    keys: Option<Range<u64>>,
    /// Bytes of the arena.
    bytes: Range<u64>,
}

impl GroupParts {
    fn shape(&self) -> GroupShape {
        GroupShape {
            entries: self.entries,
            key_bytes: self.keys.as_ref().map(|keys| keys.end - keys.start),
            block_bytes: self.bytes.end - self.bytes.start,
        }
    }

    /// Queues the copies to the memory of a group.
    fn copy(&self, read: &ReadState, memory: &Allocation) -> Result<()> {
        let (buffers, stream) = (&read.buffers, &read.ws.stream);
        let (shape, first) = (self.shape(), self.first);
        let at = |offset: u64| memory.as_ptr().wrapping_add(offset as usize);
        let mut args = PlaceArgs {
            keys: buffers.keys.as_ptr().wrapping_add(first),
            values: buffers.values.as_ptr().wrapping_add(first),
            hashes: buffers.hashes.as_ptr().wrapping_add(first),
            n: shape.entries,
            to_keys: memory.as_ptr().cast(),
            to_values: at(shape.values_at()).cast(),
            to_hashes: at(shape.hashes_at()).cast(),
            entry_shift: (first as u64).wrapping_neg(),
            value_shift: self.bytes.start.wrapping_neg(),
            ..PlaceArgs::none()
        };
        let (key_bytes_at, block_bytes_at) = (shape.key_bytes_at(), shape.block_bytes_at());
        // SAFETY: the memory has room for all parts, no other code knows it, and the caller waits for the stream. The task
        // has the entries and the bytes.
        unsafe {
            let key_bytes = shape.key_bytes.unwrap_or(0);
            for gap in [
                key_bytes_at - PADDING..key_bytes_at,
                key_bytes_at + key_bytes..block_bytes_at,
                block_bytes_at + shape.block_bytes..shape.bytes(),
            ] {
                stream.fill(at(gap.start).cast(), 0, (gap.end - gap.start) as usize)?;
            }
            if let Some(keys) = &self.keys {
                args.key_at = buffers.key_at.as_ptr().wrapping_add(first);
                args.to_key_at = at(shape.key_at()).cast();
                args.key_shift = keys.start.wrapping_neg();
                let from = read.key_memory().wrapping_add(keys.start as usize);
                stream.copy(CopyKind::Inside, at(key_bytes_at), from, key_bytes as usize)?;
            }
            let from = buffers
                .arena
                .as_ptr()
                .wrapping_add(self.bytes.start as usize);
            let len = shape.block_bytes as usize;
            stream.copy(CopyKind::Inside, at(block_bytes_at), from, len)?;
            read.ws.stages().place_entries(&raw const args, 1)
        }
    }
}
