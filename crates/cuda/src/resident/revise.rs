//! Work on all slots of a table: keys of ranges go out, and chunks of records with many dead bytes are written anew.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use rockmill_core::{KeyRange, Result};

use super::budget::Part;
use super::ranges::Ranges;
use super::table::DeviceTable;
use crate::driver::Download;
use crate::driver::ffi::{self, Exec, PlaceTotals, RecordChunk, SlotsArgs};

/// A chunk of which so many parts of its bytes are dead, or one of fewer, is written anew.
const DEAD_PARTS: u64 = 4;

/// A kernel that goes through slots.
type SlotsKernel = unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int;

impl DeviceTable {
    /// Runs a kernel over the slots, and waits for it.
    pub(super) fn go_through(
        &self,
        kernel: SlotsKernel,
        complete: impl FnOnce(&mut SlotsArgs),
    ) -> Result<PlaceTotals> {
        let _current = self.device.make_current()?;
        let part = self.empty_part(size_of::<PlaceTotals>() as u64)?;
        let this = self.as_kernels_see_it();
        let mut args = SlotsArgs {
            base: this,
            seen: ptr::null(),
            ranges: this.outside,
            table: this,
            chunks: ptr::null_mut(),
            num_chunks: 0,
            records: ptr::null_mut(),
            cursor: ptr::null_mut(),
            totals: part.as_ptr().cast(),
        };
        complete(&mut args);
        let stream = self.stream();
        // SAFETY: the slots are those of the tables, and callers have completed what their kernel uses.
        let code = unsafe { kernel(&stream.exec(ptr::null_mut(), 0), &raw const args) };
        self.device.check(code, "go through the slots of a table")?;
        let mut totals = [PlaceTotals::default()];
        // SAFETY: the part has one of these, which are plain numbers.
        unsafe { stream.download(&mut [download(&part, &mut totals)])? };
        Ok(totals[0])
    }

    /// Takes the keys of some ranges out of `table`, a copy of this one that has other rows since, but for those whose bits
    /// are set. Nobody looks keys up in the copy.
    pub(super) fn take_unseen(&self, seen: &Part, ranges: &[KeyRange], table: &Self) -> Result<()> {
        let ranges = Ranges::new(ranges, &self.budget, &self.device, &self.stream())?;
        let totals = self.go_through(self.device.table().take_unseen, |args| {
            args.seen = seen.as_ptr().cast_const().cast();
            args.ranges = ranges.as_kernels_see_them();
            args.table = table.as_kernels_see_it();
        })?;
        table.add(0, totals);
        Ok(())
    }

    /// If a quarter of the records' bytes is dead, moves what lives of the chunks in which it is so much to new ones, as far
    /// as there is memory. Nobody looks keys up in this table yet.
    pub(super) fn write_dead_chunks_anew(&self) -> Result<()> {
        let contents = self.contents();
        if contents.dead_bytes.saturating_mul(DEAD_PARTS) <= contents.record_bytes {
            return Ok(());
        }
        let mut chunks = self.held().chunks.clone();
        chunks.sort_by_key(|chunk| chunk.as_ptr().addr());
        let mut states = self.measured(&chunks)?;
        let mut dead: Vec<_> = (0..chunks.len())
            .filter(|&at| {
                let bytes = chunks[at].len();
                bytes
                    .saturating_sub(states[at].live_bytes)
                    .saturating_mul(DEAD_PARTS)
                    >= bytes
            })
            .collect();
        dead.sort_by_key(|&at| states[at].live_bytes);
        // Without memory for all of them, those with the fewest live bytes.
        let to = loop {
            let live_bytes = dead.iter().map(|&at| states[at].live_bytes).sum();
            match self.chunk(live_bytes) {
                Ok(to) => break to,
                Err(_) if dead.len() > 1 => dead.truncate(dead.len() / 2),
                Err(_) => return Ok(()),
            }
        };
        dead.iter().for_each(|&at| states[at].moves = 1);
        self.move_records(&states, to)?;
        let mut held = self.held();
        for at in dead {
            held.chunks.retain(|chunk| !Arc::ptr_eq(chunk, &chunks[at]));
            let bytes = chunks[at].len();
            held.contents.record_bytes -= bytes;
            held.contents.dead_bytes -= bytes.saturating_sub(states[at].live_bytes);
        }
        Ok(())
    }

    /// How many bytes of each chunk live. The chunks ascend by their addresses.
    fn measured(&self, chunks: &[Arc<Part>]) -> Result<Vec<RecordChunk>> {
        let mut states: Vec<_> = (chunks.iter())
            .map(|chunk| RecordChunk {
                address: chunk.as_ptr().addr() as u64,
                ..RecordChunk::default()
            })
            .collect();
        let part = self.uploaded(&states)?;
        self.go_through(self.device.table().measure_chunks, |args| {
            args.chunks = part.as_ptr().cast();
            args.num_chunks = states.len() as u64;
        })?;
        // SAFETY: the part was made for as many states, which are plain numbers.
        unsafe {
            self.stream()
                .download(&mut [download(&part, &mut states)])?
        };
        Ok(states)
    }

    fn move_records(&self, states: &[RecordChunk], to: *mut u8) -> Result<()> {
        let part = self.uploaded(states)?;
        let cursor = self.empty_part(size_of::<u64>() as u64)?;
        self.go_through(self.device.table().move_records, |args| {
            args.chunks = part.as_ptr().cast();
            args.num_chunks = states.len() as u64;
            args.records = to;
            args.cursor = cursor.as_ptr().cast();
        })?;
        Ok(())
    }

    fn uploaded(&self, states: &[RecordChunk]) -> Result<Part> {
        let part = self.budget.take(&self.device, size_of_val(states) as u64)?;
        let _current = self.device.make_current()?;
        let stream = self.stream();
        // SAFETY: the part is as long, and lives until the stream was waited for.
        unsafe { stream.upload(part.as_ptr(), states.as_ptr().cast(), size_of_val(states))? };
        stream.synchronize()?;
        Ok(part)
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
