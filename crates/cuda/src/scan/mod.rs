//! From rows to batches: on the device, the program selects rows and computes their columns, which are copied back
//! batch by batch. Groups are formed on the device if they are few and their keys are short; else on the host, from the
//! columns of their keys and arguments.

mod encode;
mod groups;
mod layout;
mod returned;

use rockmill_core::scan::{
    BATCH_BYTES, BATCH_ROWS, Batch, BatchSink, Cell, ColumnType, Groups, ScanOutput, ScanPlan,
    exceeds,
};
use rockmill_core::{BatchOutput, CancelToken, Error, ErrorKind, InputTable, Request, Result};

use crate::driver::altered;
use crate::driver::ffi::{
    ERROR_CHECK, ScanArgs, ScanArgument, ScanColumn, ScanConstant, ScanGroupKey, ScanOp,
};
use crate::memory::buffers;
use crate::read::{ReadSize, ReadState, SelectedRows};
use encode::EncodedGroups;
use groups::{KEY_WORDS, Parts};
use layout::{Layout, cell};
use returned::{Part, words};

pub use encode::{Encoded, Encodings};
pub use returned::Returned;

/// Sizes of a scan's buffers.
#[derive(Debug, Clone, Copy)]
pub struct ScanSize {
    entries: u64,
    ops: u64,
    constants: u64,
    literal_bytes: u64,
    columns: u64,
    /// Memory of a batch.
    batch_bytes: u64,
    /// Groups on the device; 0 if the device forms none.
    group_keys: u64,
    arguments: u64,
    groups: u64,
    slots: u64,
    /// Words of each group.
    words: u64,
}

impl ScanSize {
    /// The estimate.
    pub fn estimate(
        read: &ReadSize,
        request: &Request<'_>,
        plan: &ScanPlan,
        encoded: &Encoded,
    ) -> Self {
        let types: Vec<_> = encoded.columns.iter().map(|column| column.stored).collect();
        let blocks = request.tables.iter().map(InputTable::largest_block_bytes);
        let bytes = read.block_bytes().saturating_add(read.key_bytes);
        let row = blocks.max().unwrap_or(0);
        let rows = read.entries.min(BATCH_ROWS as u64);
        let data = plan.data_bytes(&types, BATCH_BYTES, read.entries, bytes, row);
        let groups = encoded.groups.as_ref();
        let of_groups = |of: fn(&EncodedGroups, u64) -> u64| {
            groups.map_or(0, |groups| of(groups, read.entries))
        };
        Self {
            entries: read.entries,
            group_keys: of_groups(|groups, _| groups.keys.len() as u64),
            arguments: of_groups(|groups, _| groups.arguments.len() as u64),
            groups: of_groups(EncodedGroups::most_of),
            slots: of_groups(EncodedGroups::num_slots),
            words: of_groups(|groups, _| groups.num_words.into()),
            ops: encoded.ops.len() as u64,
            constants: encoded.constants.len() as u64,
            literal_bytes: encoded.literals.len() as u64,
            columns: encoded.columns.len() as u64,
            batch_bytes: Layout::new(&encoded.columns, rows as usize).bytes(data),
        }
    }
}

/// Host memory of a scan.
pub fn host_bytes(request: &Request<'_>, plan: &ScanPlan, encoded: Option<&Encoded>) -> u64 {
    let batch_and_groups = encoded.map_or(0, |encoded| {
        let size = ScanSize::estimate(&ReadSize::estimate(request, None), request, plan, encoded);
        let words = size.slots + size.groups * size.words;
        (size.batch_bytes).saturating_add(words * size_of::<u64>() as u64)
    });
    batch_and_groups.saturating_add(plan.memory_bytes(request.tables, request.range))
}

buffers! {
    /// Buffers of a scan beside rows.
    ScanBuffers of ScanSize, |x|
    ops: ScanOp = x.ops;
    constants: ScanConstant = x.constants;
    literals: u8 = x.literal_bytes;
    columns: ScanColumn = x.columns;
    selected: u32 = x.entries;
    sizes: u64 = x.entries + 1;
    offsets: u64 = x.entries + 1;
    batch: u8 = x.batch_bytes;
    group_keys: ScanGroupKey = x.group_keys;
    arguments: ScanArgument = x.arguments;
    found: u64 = 1;
    table: u64 = x.slots * KEY_WORDS;
    firsts: u64 = x.slots;
    words: u64 = x.slots * x.words;
    slots: u32 = x.groups;
    taken: u64 = x.groups * x.words;
}

/// Passes on the output of a plan over all rows, and returns its bytes.
///
/// # Errors
/// The errors of `sink`; OutOfRange; Verification if the returned data are impossible; Device, Cancelled.
pub fn scan(
    read: &mut ReadState,
    selected_rows: &SelectedRows,
    plan: &ScanPlan,
    encoded: &Encoded,
    cancel: &CancelToken,
    sink: &mut dyn BatchSink,
) -> Result<(BatchOutput, u64)> {
    let buffers = &mut ScanBuffers::new(&read.ws.arena);
    let mut groups = match &plan.output {
        ScanOutput::Groups(aggregation) => Some(Groups::new(aggregation, plan.output.columns())),
        ScanOutput::Rows(_) => None,
    };
    let mut columns_of = vec![0; plan.instructions.len()];
    for (i, column) in encoded.columns.iter().enumerate() {
        columns_of[usize::from(column.register)] = i;
    }
    let mut output = BatchOutput {
        rows: selected_rows.len as u64,
        selected: 0,
        malformed: 0,
    };
    let mut bytes = 0;
    if selected_rows.len > 0 {
        let mut scan = Scan::begin(read, selected_rows, encoded, buffers)?;
        (output.selected, output.malformed) = scan.filter()?;
        cancel.check()?;
        let parts = scan.group()?;
        bytes += parts.as_ref().map_or(0, Parts::bytes);
        let mut nth = 0;
        for end in scan.cut()? {
            cancel.check()?;
            let batch = scan.batch(end)?;
            let columns = batch.columns.iter();
            bytes += columns
                .map(|column| column.values.len() as u64)
                .sum::<u64>();
            let Some(groups) = &mut groups else {
                sink.batch(batch)?;
                continue;
            };
            for row in 0..batch.rows {
                let cell = |register| -> Cell<'_> {
                    let at = columns_of[usize::from(register)];
                    cell(&batch.columns[at], encoded.columns[at].stored, row)
                };
                match &parts {
                    Some(parts) => groups.part(sink, cell, |of| parts.part(nth, of))?,
                    None => groups.row(sink, cell)?,
                }
                nth += 1;
            }
        }
    }
    if let Some(groups) = groups {
        groups.finish(sink)?;
    }
    Ok((output, bytes))
}

/// A running scan.
struct Scan<'a> {
    read: &'a mut ReadState,
    encoded: &'a Encoded,
    buffers: &'a mut ScanBuffers,
    args: ScanArgs,
    returned: Returned,
    /// Selected rows that were passed on.
    done: usize,
}

impl<'a> Scan<'a> {
    /// Copies the program to the device.
    fn begin(
        read: &'a mut ReadState,
        selected_rows: &SelectedRows,
        encoded: &'a Encoded,
        buffers: &'a mut ScanBuffers,
    ) -> Result<Self> {
        let n = selected_rows.len;
        read.ws.make_scratch(&read.device, n + 1)?;
        let returned = Returned::new(read)?;
        let stream = &read.ws.stream;
        let row_bytes: usize = (encoded.columns.iter())
            .map(|column| column.stored.row_bytes())
            .sum();
        let has_bytes = (encoded.columns.iter()).any(|column| column.stored == ColumnType::Bytes);
        let columns = Layout::new(&encoded.columns, 0).columns;
        let args = ScanArgs {
            arena: read.buffers.arena.as_ptr(),
            rows: read.buffers.keys_on(selected_rows.side).as_ptr(),
            n: n as u64,
            key_bytes: read.key_bytes(selected_rows.wide),
            values: read.buffers.values.as_ptr(),
            ops: buffers.ops.upload(&encoded.ops, stream)?,
            constants: buffers.constants.upload(&encoded.constants, stream)?,
            literals: buffers.literals.upload(&encoded.literals, stream)?,
            num_filter: encoded.num_filter as u32,
            num_ops: encoded.ops.len() as u32,
            columns: buffers.columns.upload(&columns, stream)?,
            num_columns: columns.len() as u32,
            row_bytes: row_bytes as u32,
            has_bytes: u32::from(has_bytes),
            num_slots: encoded.num_slots,
            batch_rows: BATCH_ROWS as u64,
            batch_bytes: BATCH_BYTES as u64,
            keep: read.buffers.keep.room(n + 1)?,
            places: read.buffers.places.room(n + 1)?,
            selected: buffers.selected.room(n)?,
            num_selected: 0,
            sizes: buffers.sizes.room(n + 1)?,
            offsets: buffers.offsets.room(n + 1)?,
            out: buffers.batch.as_ptr(),
            errors: read.ws.errors.as_ptr().cast(),
        };
        Ok(Self {
            read,
            encoded,
            buffers,
            args,
            returned,
            done: 0,
        })
    }

    /// Finds the selected rows, their number, and the number of malformed rows.
    fn filter(&mut self) -> Result<(u64, u64)> {
        let (read, n) = (&*self.read, self.args.n as usize);
        read.buffers.keep.fill(n, 1, 0, &read.ws.stream)?;
        self.buffers.sizes.fill(0, 1, 0, &read.ws.stream)?;
        // SAFETY: there is room for one more than the number of rows, which name decoded entries.
        unsafe { read.ws.stages().scan_filter(&self.args) }?;
        let buffers = &read.buffers;
        let parts = [
            buffers.places.view(n..n + 1).into(),
            self.buffers.sizes.view(0..1).into(),
        ];
        let counts = self.fetch(&parts)?;
        let count = |bytes: &[u8]| {
            bytes
                .iter()
                .rfold(0, |all, &byte| all << 8 | u64::from(byte))
        };
        let [selected, malformed] = [count(&counts[0]), count(&counts[1])];
        if selected > n as u64 || malformed > n as u64 {
            return Err(altered("more rows are selected or malformed than exist"));
        }
        self.args.num_selected = selected;
        self.read.mark("filter rows", 0)?;
        Ok((selected, malformed))
    }

    /// Finds the ends of batches among the selected rows.
    fn cut(&mut self) -> Result<Vec<usize>> {
        let selected = self.args.num_selected as usize;
        if selected == 0 {
            return Ok(Vec::new());
        }
        let read = &*self.read;
        let stream = &read.ws.stream;
        self.buffers.sizes.fill(selected, 1, 0, stream)?;
        // SAFETY: there is room for one more than the number of selected rows.
        unsafe { read.ws.stages().scan_measure(&self.args) }?;
        /// Most scans have fewer batches, so one wait suffices.
        const USUAL_BATCHES: usize = 8;
        let first = self.buffers.sizes.view(0..1 + selected.min(USUAL_BATCHES));
        let mut ends = words(&self.fetch(&[first.into()])?[0]);
        let batches = ends[0] as usize;
        if batches == 0 || batches > selected {
            return Err(altered("the ends of batches changed on the way back"));
        }
        if batches > USUAL_BATCHES {
            let all = self.buffers.sizes.view(0..1 + batches);
            ends = words(&self.fetch(&[all.into()])?[0]);
        }
        let ends = ends.drain(1..=batches);
        let ends: Vec<_> = ends.map(|end| end as usize).collect();
        match ends.is_sorted_by(|a, b| a < b) && ends.last() == Some(&selected) && ends[0] > 0 {
            true => Ok(ends),
            false => Err(altered("the ends of batches changed on the way back")),
        }
    }

    /// Computes the batch that ends before a selected row, and copies it back.
    fn batch(&mut self, end: usize) -> Result<Batch> {
        let (first, rows) = (self.done, end - self.done);
        self.done = end;
        let fixed = u64::from(self.args.row_bytes) * rows as u64;
        let data = match self.args.has_bytes {
            0 => 0,
            _ => self.data_bytes(first, end, fixed)?,
        };
        let read = &*self.read;
        let stream = &read.ws.stream;
        let mut layout = Layout::new(&self.encoded.columns, rows);
        self.args.out = (self.buffers.batch).room(layout.bytes(data) as usize)?;
        self.args.columns = self.buffers.columns.upload(&layout.columns, stream)?;
        // SAFETY: the columns have room for the rows that are filled.
        unsafe {
            read.ws.stages().scan_fill(
                &self.args,
                layout.columns.as_ptr(),
                first as u64,
                rows as u64,
            )
        }?;
        let parts = self.fetch(&layout.parts(&self.buffers.batch))?;
        let mut batch = layout.batch(parts);
        if self.args.has_bytes != 0 {
            layout.place_data(&batch, data)?;
            let ws = &self.read.ws;
            self.args.columns = (self.buffers.columns).upload(&layout.columns, &ws.stream)?;
            // SAFETY: offsets give the places of the bytes, for which there is room.
            unsafe { ws.stages().scan_copy(&self.args, first as u64, rows as u64) }?;
            let parts = self.fetch(&layout.data_parts(&batch, &self.buffers.batch))?;
            let with_bytes = batch.columns.iter_mut().filter(|c| !c.offsets.is_empty());
            for (column, bytes) in with_bytes.zip(parts) {
                column.values = bytes;
            }
        }
        self.read.mark("make columns", fixed + data)?;
        Ok(batch)
    }

    /// Bytes of some selected rows in byte columns. All columns take `fixed` bytes more.
    fn data_bytes(&mut self, first: usize, end: usize, fixed: u64) -> Result<u64> {
        let at = |row: usize| self.buffers.offsets.view(row..row + 1).into();
        let parts = [at(first), at(end)];
        let offsets = self.fetch(&parts)?;
        let [start, end] = [0, 1].map(|i| words(&offsets[i])[0]);
        let all = end.checked_sub(start);
        let data = all.and_then(|all| all.checked_sub(fixed));
        data.ok_or_else(|| altered("sizes of rows changed on their way back"))
    }

    /// Copies parts back. If the device has recorded an error, returns that.
    fn fetch(&mut self, parts: &[Part]) -> Result<Vec<Vec<u8>>> {
        let (parts, error) = self.returned.fetch(self.read, parts)?;
        error.map_or(Ok(parts), |error| {
            Err(match error.code {
                // The CPU, which repeats the task, names the row.
                ERROR_CHECK => {
                    let what = "a row does not match the table's columns";
                    Error::new(ErrorKind::Corruption, what)
                }
                _ => exceeds("a number"),
            })
        })
    }
}
