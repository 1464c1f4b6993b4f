//! From rows of a task to a table: their records are measured, the table makes room, and keys and values move there.

use std::any::Any;
use std::ptr;

use rockmill_core::{Error, ResidentTable, Result, RowOutput};

use super::delta::{Delta, Unseen};
use super::table::DeviceTable;
use crate::driver::ffi::{self, InsertArgs, InsertTotals};
use crate::memory::buffers;
use crate::read::{ReadSize, ReadState, SelectedRows};

buffers! {
    /// Buffers for storing rows in a table.
    InsertBuffers of ReadSize, |x|
    sizes: u64 = x.entries + 1;
    offsets: u64 = x.entries + 1;
    totals: InsertTotals = 1;
}

/// Use of the rows.
struct RowTarget<'a> {
    base: Option<&'a DeviceTable>,
    seen: *mut u64,
    /// The target table, unless rows are only counted.
    table: &'a DeviceTable,
    counter: Option<&'a Unseen>,
}

impl<'a> RowTarget<'a> {
    fn of(table: &'a dyn ResidentTable) -> Option<Self> {
        let any: &dyn Any = table;
        if let Some(table) = any.downcast_ref() {
            return Some(Self {
                base: None,
                seen: ptr::null_mut(),
                table,
                counter: None,
            });
        }
        if let Some(Delta { base, table, seen }) = any.downcast_ref() {
            return Some(Self {
                base: Some(base),
                seen: seen.as_ptr().cast(),
                table,
                counter: None,
            });
        }
        let counter: &Unseen = any.downcast_ref()?;
        Some(Self {
            base: Some(&counter.base),
            seen: counter.seen.as_ptr().cast(),
            table: &counter.base,
            counter: Some(counter),
        })
    }
}

/// Stores all rows in the table, or counts them. Returns their number, and the bytes of their records.
///
/// # Errors
/// Device, also if the table may not take that much memory; Internal if the table is another device's.
pub fn insert(
    read: &mut ReadState,
    selected_rows: &SelectedRows,
    table: &dyn ResidentTable,
) -> Result<RowOutput> {
    let target = RowTarget::of(table).filter(|target| target.table.device.is(&read.device));
    let target = target.ok_or_else(|| Error::internal("the table lies on another device"))?;
    let n = selected_rows.len;
    if n == 0 {
        return Ok(RowOutput::default());
    }
    let placed = insert_rows(read, selected_rows, &target);
    if placed.is_err() {
        // Kernels may still write to memory that is freed with the table.
        let _ = read.ws.stream.synchronize();
    }
    placed
}

fn insert_rows(
    read: &mut ReadState,
    selected_rows: &SelectedRows,
    target: &RowTarget<'_>,
) -> Result<RowOutput> {
    let n = selected_rows.len;
    read.ws.make_scratch(&read.device, n + 1)?;
    let stream = &read.ws.stream;
    let buffers = &mut InsertBuffers::new(&read.ws.arena);
    let base = target.base.map(DeviceTable::kernel_form);
    let mut args = InsertArgs {
        arena: read.buffers.arena.as_ptr(),
        rows: read.buffers.keys_on(selected_rows.side).as_ptr(),
        n: n as u64,
        key_bytes: read.key_bytes(selected_rows.wide),
        values: read.buffers.values.as_ptr(),
        sizes: buffers.sizes.room(n + 1)?,
        offsets: buffers.offsets.room(n + 1)?,
        records: ptr::null_mut(),
        base: base.unwrap_or_else(ffi::ResidentTable::none),
        seen: target.seen,
        table: target.table.kernel_form(),
        totals: buffers.totals.upload(&[InsertTotals::default()], stream)?,
    };
    let mut bytes = 0;
    if target.counter.is_some() {
        // SAFETY: the rows name decoded entries, and both tables have their slots and records.
        unsafe { read.ws.stages().count_unseen(&args) }?;
    } else {
        buffers.sizes.fill(n, 1, 0, stream)?;
        // SAFETY: there is room for one more than the number of rows, which name decoded entries.
        unsafe { read.ws.stages().measure_records(&args) }?;
        bytes = buffers.offsets.download(n, 1, stream)?[0];
        args.records = target.table.chunk(bytes)?;
        // SAFETY: the chunk has room for all records, and the slots are those of the table.
        unsafe { read.ws.stages().insert_records(&args) }?;
    }
    let totals = buffers.totals.download(0, 1, stream)?[0];
    match target.counter {
        Some(counter) => counter.add(totals.unseen),
        None => target.table.add(n as u64, totals),
    }
    read.mark("place records", bytes)?;
    Ok(RowOutput {
        rows: n as u64,
        bytes,
    })
}
