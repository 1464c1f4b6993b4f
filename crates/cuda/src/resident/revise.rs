//! Work on all slots of a table: removing keys of ranges, and rewriting chunks of records with many dead bytes.

use std::ptr;
use std::sync::Arc;

use rockmill_core::{KeyRange, Result};

use super::budget::Part;
use super::ranges::Ranges;
use super::table::{DeviceTable, settled};
use crate::driver::Download;
use crate::driver::ffi::{self, InsertTotals, RecordChunk, SlotsArgs, Stages};

/// A chunk is rewritten if at least one of this many parts of its bytes is dead.
const DEAD_PARTS: u64 = 4;

/// Chunks of records, some of which move.
struct DeadChunks {
    /// By their addresses.
    chunks: Vec<Arc<Part>>,
    states: Vec<RecordChunk>,
    states_part: Part,
    /// Where records move.
    to: *mut u8,
}

impl DeviceTable {
    /// Runs a stage over the slots, and waits for it.
    pub(super) fn go_through(
        &self,
        stage: impl Fn(&Stages<'_>, &SlotsArgs) -> Result<()>,
        complete: impl FnOnce(&mut SlotsArgs),
    ) -> Result<InsertTotals> {
        let _current = self.device.make_current()?;
        let this = self.kernel_form();
        let scratch = self.scratch.as_ptr();
        let mut args = SlotsArgs {
            base: this,
            seen: ptr::null(),
            ranges: this.outside,
            table: this,
            chunks: ptr::null_mut(),
            num_chunks: 0,
            records: ptr::null_mut(),
            cursor: scratch.wrapping_add(size_of::<InsertTotals>()).cast(),
            totals: scratch.cast(),
        };
        complete(&mut args);
        let stream = self.stream.lock();
        let mut totals = [InsertTotals::default()];
        let mut run = || {
            // SAFETY: the scratch memory lives until the stream has been waited for, and no other code has it.
            unsafe { stream.fill(scratch.cast(), 0, self.scratch.len() as usize)? };
            stage(&stream.stages(ptr::null_mut(), 0), &args)?;
            // SAFETY: the scratch begins with one of these, which are plain numbers.
            unsafe { stream.download(&mut [download(&self.scratch, &mut totals)]) }
        };
        settled(&stream, run())?;
        Ok(totals[0])
    }

    /// Removes the keys of some ranges from `table`, except those whose bits are set. `table` is a copy of this one
    /// that has received other rows since. Lookups do not use the copy yet.
    pub(super) fn erase_missing(
        &self,
        seen: &Part,
        ranges: &[KeyRange],
        table: &Self,
    ) -> Result<()> {
        let ranges = Ranges::new(ranges, &self.budget, &self.device, &self.stream.lock())?;
        // SAFETY: the slots are those of the tables, and the arguments that the stage uses are set.
        let stage = |stages: &Stages<'_>, args: &SlotsArgs| unsafe { stages.erase_missing(args) };
        let totals = self.go_through(stage, |args| {
            args.seen = seen.as_ptr().cast_const().cast();
            args.ranges = ranges.kernel_form();
            args.table = table.kernel_form();
        })?;
        table.add(0, totals);
        Ok(())
    }

    /// Does nothing unless a quarter of the records' bytes is dead. Moves the live records of chunks that are a quarter
    /// dead to new ones, as far as there is memory. Lookups do not use this table yet.
    pub(super) fn write_dead_chunks_anew(&self) -> Result<()> {
        let contents = self.contents();
        if contents.dead_bytes.saturating_mul(DEAD_PARTS) <= contents.record_bytes {
            return Ok(());
        }
        let Some(dead) = self.dead_chunks()? else {
            return Ok(());
        };
        // SAFETY: the slots are those of the table, and the arguments that the stage uses are set.
        let stage = |stages: &Stages<'_>, args: &SlotsArgs| unsafe { stages.move_records(args) };
        self.go_through(stage, |args| {
            args.chunks = dead.states_part.as_ptr().cast();
            args.num_chunks = dead.states.len() as u64;
            args.records = dead.to;
        })?;
        let mut held = self.held.lock();
        for (chunk, state) in dead.chunks.iter().zip(&dead.states) {
            if state.moves == 1 {
                held.chunks.retain(|other| !Arc::ptr_eq(other, chunk));
                held.contents.record_bytes -= chunk.len();
                held.contents.dead_bytes -= chunk.len().saturating_sub(state.live_bytes);
            }
        }
        Ok(())
    }

    /// The chunks in which a quarter is dead, with memory for their live records; `None` without memory.
    fn dead_chunks(&self) -> Result<Option<DeadChunks>> {
        let mut chunks = self.held.lock().chunks.clone();
        chunks.sort_by_key(|chunk| chunk.as_ptr().addr());
        let Some(mut states) = self.measured(&chunks)? else {
            return Ok(None);
        };
        let mut dead: Vec<_> = (0..chunks.len())
            .filter(|&at| {
                let (bytes, live_bytes) = (chunks[at].len(), states[at].live_bytes);
                bytes.saturating_sub(live_bytes).saturating_mul(DEAD_PARTS) >= bytes
            })
            .collect();
        dead.sort_by_key(|&at| states[at].live_bytes);
        dead.iter().for_each(|&at| states[at].moves = 1);
        // If memory does not suffice for all of them, those with the fewest live bytes.
        while !dead.is_empty() {
            let Some(states_part) = self.uploaded(&states)? else {
                return Ok(None);
            };
            let live_bytes = dead.iter().map(|&at| states[at].live_bytes).sum();
            if let Ok(to) = self.chunk(live_bytes) {
                return Ok(Some(DeadChunks {
                    chunks,
                    states,
                    states_part,
                    to,
                }));
            }
            let stay = dead.split_off(dead.len() / 2);
            stay.iter().for_each(|&at| states[at].moves = 0);
        }
        Ok(None)
    }

    /// The live bytes of each chunk. The chunks ascend by address.
    fn measured(&self, chunks: &[Arc<Part>]) -> Result<Option<Vec<RecordChunk>>> {
        let mut states: Vec<_> = (chunks.iter())
            .map(|chunk| RecordChunk {
                address: chunk.as_ptr().addr() as u64,
                ..RecordChunk::default()
            })
            .collect();
        let Some(part) = self.uploaded(&states)? else {
            return Ok(None);
        };
        // SAFETY: the slots are those of the table, and the arguments that the stage uses are set.
        let stage = |stages: &Stages<'_>, args: &SlotsArgs| unsafe { stages.measure_chunks(args) };
        self.go_through(stage, |args| {
            args.chunks = part.as_ptr().cast();
            args.num_chunks = states.len() as u64;
        })?;
        let stream = self.stream.lock();
        // SAFETY: the part was allocated for as many states, which are plain numbers.
        let copied = unsafe { stream.download(&mut [download(&part, &mut states)]) };
        settled(&stream, copied)?;
        Ok(Some(states))
    }

    /// The states in device memory, if there is some.
    fn uploaded(&self, states: &[RecordChunk]) -> Result<Option<Part>> {
        let bytes = size_of_val(states);
        let Ok(part) = self.budget.take(&self.device, bytes as u64) else {
            return Ok(None);
        };
        let _current = self.device.make_current()?;
        let stream = self.stream.lock();
        // SAFETY: the part is as long, and lives until the stream has been waited for.
        let copied = unsafe { stream.upload(part.as_ptr(), states.as_ptr().cast(), bytes) };
        settled(&stream, copied)?;
        Ok(Some(part))
    }
}

fn download<T>(from: &Part, values: &mut [T]) -> Download {
    Download {
        from: from.as_ptr(),
        to: values.as_mut_ptr().cast(),
        len: size_of_val(values),
    }
}

impl ffi::ResidentTable {
    /// No table.
    pub(super) fn none() -> Self {
        Self {
            slots: ptr::null_mut(),
            buckets: 0,
            seed: 0,
            hash_mask: 0,
            outside: ffi::KeyRanges {
                ends: ptr::null(),
                bytes: ptr::null(),
                num_bounds: 0,
            },
        }
    }
}
