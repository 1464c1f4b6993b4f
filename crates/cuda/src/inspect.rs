//! Passes rows to a callback: the device makes them contiguous, and they are copied back in parts and passed on one by
//! one.

use rockmill_core::{CancelToken, Result, Row, RowOutput, RowSink, entry_hash, kv_hash};
use rockmill_format::key::{ValueType, tag_sequence, tag_type};

use crate::driver::altered;
use crate::driver::ffi::{Key, RowArgs};
use crate::memory::buffers;
use crate::read::{KEY_PADDING, ReadSize, ReadState, SelectedRows, WORD_KEY_BYTES};

/// Bytes that are copied back at a time. A larger row is copied back by itself.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Rows whose keys are copied back at a time.
const BATCH_ROWS: usize = 32 << 10;

/// Host memory of the rows that were copied back, except for a row that is larger than a part.
pub const HOST_BYTES: u64 =
    PIECE_BYTES + BATCH_ROWS as u64 * (size_of::<Key>() + size_of::<u64>()) as u64;

/// Passes on all rows.
///
/// # Errors
/// The errors of `sink`; Verification if other rows came back than were kept; Device, Cancelled.
pub fn inspect(
    read: &ReadState,
    selected_rows: &SelectedRows,
    cancel: &CancelToken,
    sink: &mut dyn RowSink,
) -> Result<RowOutput> {
    let mut inspector = Inspector {
        read,
        selected_rows,
        sink,
        output: RowOutput::default(),
        hash: 0,
        last_key: Vec::new(),
    };
    let buffers = &mut InspectBuffers::new(&read.ws.arena);
    let args = inspector.measure(buffers)?;
    let mut first = 0;
    while first < selected_rows.len {
        cancel.check()?;
        first += inspector.batch(buffers, &args, first)?;
    }
    match inspector.hash == selected_rows.totals.rows_hash {
        true => Ok(inspector.output),
        false => Err(altered("other rows came back than were kept")),
    }
}

buffers! {
    /// Buffers for passing on rows.
    InspectBuffers of ReadSize, |x|
    sizes: u64 = x.entries;
    offsets: u64 = x.entries;
    piece: u8 = PIECE_BYTES.min(x.stored_bytes.saturating_add(x.key_bytes));
}

struct Inspector<'a> {
    read: &'a ReadState,
    selected_rows: &'a SelectedRows,
    sink: &'a mut dyn RowSink,
    output: RowOutput,
    /// Sum over the rows passed on.
    hash: u64,
    last_key: Vec<u8>,
}

impl Inspector<'_> {
    /// Finds the position of each row once the rows are contiguous.
    fn measure(&self, buffers: &mut InspectBuffers) -> Result<RowArgs> {
        let (read, n) = (self.read, self.selected_rows.len);
        let args = RowArgs {
            arena: read.buffers.arena.as_ptr(),
            rows: read.buffers.keys_on(self.selected_rows.side).as_ptr(),
            n: n as u64,
            key_bytes: read.key_bytes(self.selected_rows.wide),
            values: read.buffers.values.as_ptr(),
            sizes: buffers.sizes.room(n + 1)?,
            offsets: buffers.offsets.room(n + 1)?,
        };
        buffers.sizes.fill(n, 1, 0, &read.ws.stream)?;
        // SAFETY: there is room for one more than the number of rows, which name decoded entries.
        unsafe { read.ws.stages().measure_rows(&args) }?;
        Ok(args)
    }

    /// Copies some rows back from `first` on and passes them on; returns their number.
    fn batch(
        &mut self,
        buffers: &mut InspectBuffers,
        args: &RowArgs,
        first: usize,
    ) -> Result<usize> {
        let stream = &self.read.ws.stream;
        let len = BATCH_ROWS.min(self.selected_rows.len - first);
        let keys = self.read.buffers.keys_on(self.selected_rows.side);
        let keys = keys.download(first, len, stream)?;
        let offsets = buffers.offsets.download(first, len + 1, stream)?;
        if offsets.windows(2).zip(&keys).any(|(ends, key)| {
            let bytes = ends[1].checked_sub(ends[0]);
            bytes.is_none_or(|bytes| bytes < u64::from(key.len))
        }) {
            return Err(altered("the places of rows changed on the way back"));
        }
        let mut from = 0;
        while from < len {
            let most = offsets[from].saturating_add(PIECE_BYTES);
            let to = offsets.partition_point(|&end| end <= most) - 1;
            if to == from {
                self.large_row(&keys[from])?;
                from += 1;
                continue;
            }
            let bytes = (offsets[to] - offsets[from]) as usize;
            let piece = buffers.piece.room(bytes)?;
            // SAFETY: the rows lie among those that were measured, and the part has room for them.
            unsafe {
                let (from, to) = ((first + from) as u64, (first + to) as u64);
                self.read.ws.stages().copy_rows(args, from, to, piece)?;
            }
            let bytes = buffers.piece.download(0, bytes, stream)?;
            for (key, ends) in keys[from..to].iter().zip(offsets[from..].windows(2)) {
                let [start, end] = [ends[0], ends[1]].map(|at| (at - offsets[from]) as usize);
                let (user_key, value) = bytes[start..end].split_at(key.len as usize);
                self.hand_over(user_key, key.tag, value)?;
            }
            from = to;
        }
        Ok(len)
    }

    /// Passes on a row that is larger than a part, directly from the decoded entry.
    fn large_row(&mut self, key: &Key) -> Result<()> {
        let (buffers, stream) = (&self.read.buffers, &self.read.ws.stream);
        let (entry, len) = (key.entry as usize, key.len as usize);
        let value = buffers.values.download(entry, 1, stream)?[0];
        let value = (buffers.arena).download(value.at as usize, value.len as usize, stream)?;
        let user_key = if u64::from(key.len) > WORD_KEY_BYTES {
            let at = buffers.key_at.download(entry, 1, stream)?[0] as usize;
            buffers.key_bytes.download(KEY_PADDING + at, len, stream)?
        } else {
            [key.hi, key.lo].map(u64::to_be_bytes).concat()[..len].to_vec()
        };
        self.hand_over(&user_key, key.tag, &value)
    }

    fn hand_over(&mut self, user_key: &[u8], tag: u64, value: &[u8]) -> Result<()> {
        let value_type = ValueType::from_code(tag_type(tag))
            .ok_or_else(|| altered("a row of a type that was not decoded"))?;
        if user_key < self.last_key.as_slice() {
            return Err(altered("rows came back in another order"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(user_key);
        let hash = entry_hash(kv_hash(user_key, value), tag);
        self.hash = self.hash.wrapping_add(hash);
        self.output.rows += 1;
        self.output.bytes += (user_key.len() + value.len()) as u64;
        self.sink.row(Row {
            user_key,
            sequence: tag_sequence(tag),
            value_type,
            value,
        })
    }
}
