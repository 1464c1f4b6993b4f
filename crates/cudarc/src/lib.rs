//! Lookups of keys whose memory and stream are cudarc's.
//!
//! cudarc knows how long memory is, lets streams wait for each other's work on it, and frees it once that work is done.
//! So its slices need no unsafe code of the caller.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureStatus;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop};
use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cuda::{CallerStream, DeviceTable, InUse, Keys, KvRecord, Rows};

/// Numbers in slices, whose bytes are keys or values.
///
/// # Safety
/// Any bytes are such a number.
pub unsafe trait Number: Copy {}

macro_rules! number {
    ($($number:ty)+) => { $(
        // SAFETY: all of its bits are those of a number.
        unsafe impl Number for $number {}
    )+ };
}

number!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// A stream stops using lent memory before cudarc gives the memory to another user.
type StreamGuard<'a> = SyncOnDrop<'a>;

/// Keys in slices of a device.
pub struct SliceKeys<'a> {
    keys: Keys,
    len: usize,
    stream: &'a CudaStream,
    _lent: [Option<StreamGuard<'a>>; 2],
}

/// Slices of a device for values and statuses of keys.
pub struct SliceRows<'a> {
    rows: Rows,
    stride: usize,
    /// How many keys there is room for.
    room: usize,
    stream: &'a CudaStream,
    lent: Vec<StreamGuard<'a>>,
}

impl fmt::Debug for SliceKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceKeys")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SliceRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceRows")
            .field("stride", &self.stride)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

fn invalid<T>(what: String) -> Result<T> {
    let what = format!("cannot look keys up: {what}");
    Err(Error::new(ErrorKind::Invalid, what))
}

/// Refuses a slice of another context than the stream's: cudarc would let neither wait for the other.
fn require_context<T>(slice: &impl DeviceSlice<T>, stream: &CudaStream) -> Result<()> {
    match Arc::ptr_eq(slice.stream().context(), stream.context()) {
        true => Ok(()),
        false => invalid("a slice and the stream have different contexts".to_owned()),
    }
}

impl<'a> SliceKeys<'a> {
    /// Contiguous keys of `key_bytes` bytes each, for a lookup on a stream.
    ///
    /// # Errors
    /// Invalid if the slice does not consist of whole keys, or has another context than the stream.
    pub fn fixed<T: Number>(
        keys: &'a impl DevicePtr<T>,
        key_bytes: usize,
        stream: &'a CudaStream,
    ) -> Result<Self> {
        require_context(keys, stream)?;
        let bytes = keys.num_bytes();
        if key_bytes == 0 || !bytes.is_multiple_of(key_bytes) {
            return invalid(format!("{bytes} bytes are no whole keys of {key_bytes}"));
        }
        let len = bytes / key_bytes;
        let (at, lent) = keys.device_ptr(stream);
        // SAFETY: `len` keys are there. Cudarc makes others wait for the stream before they change or free them.
        let keys = unsafe { Keys::fixed(pointer(at), key_bytes as u64, len as u64) };
        Ok(Self {
            keys,
            len,
            stream,
            _lent: [Some(lent), None],
        })
    }

    /// Keys of any length: key `i` is the bytes from `offsets[i]` to `offsets[i + 1]`. There is one key less than offsets.
    /// Offsets that descend, or lie behind the bytes, name keys that are not found.
    ///
    /// # Errors
    /// Invalid if there are no offsets, or a slice has another context than the stream.
    pub fn varied<T: Number>(
        bytes: &'a impl DevicePtr<T>,
        offsets: &'a impl DevicePtr<u64>,
        stream: &'a CudaStream,
    ) -> Result<Self> {
        require_context(bytes, stream)?;
        require_context(offsets, stream)?;
        let Some(len) = offsets.len().checked_sub(1) else {
            return invalid(
                "there are no offsets, and there has to be one more than keys".to_owned(),
            );
        };
        let (bytes_at, lent) = bytes.device_ptr(stream);
        let (offsets_at, lent_offsets) = offsets.device_ptr(stream);
        // SAFETY: as above; and keys behind the bytes are not read.
        let keys = unsafe { Keys::varied(pointer(bytes_at), pointer(offsets_at), len as u64) };
        Ok(Self {
            keys: keys.within(bytes.num_bytes() as u64),
            len,
            stream,
            _lent: [Some(lent), Some(lent_offsets)],
        })
    }
}

impl<'a> SliceRows<'a> {
    /// Rows of `stride` bytes, and a byte for each key's status ([`Rows`]). There may be more of them than keys.
    ///
    /// # Errors
    /// Invalid if a slice has another context than the stream.
    pub fn new<T: Number>(
        rows: &'a mut impl DevicePtrMut<T>,
        stride: usize,
        statuses: &'a mut impl DevicePtrMut<u8>,
        stream: &'a CudaStream,
    ) -> Result<Self> {
        require_context(rows, stream)?;
        require_context(statuses, stream)?;
        let room = rows.num_bytes().checked_div(stride).unwrap_or(usize::MAX);
        let room = room.min(statuses.len());
        let (rows, lent_rows) = rows.device_ptr_mut(stream);
        let (statuses, lent_statuses) = statuses.device_ptr_mut(stream);
        // SAFETY: there is room for as many keys as `look_up` has, which it checks. Cudarc makes others wait for the
        // stream.
        let rows = unsafe { Rows::new(pointer_mut(rows), stride as u64, pointer_mut(statuses)) };
        Ok(Self {
            rows,
            stride,
            room,
            stream,
            lent: vec![lent_rows, lent_statuses],
        })
    }

    /// The same, where rows of keys that are not in the database are copied from `default_row`.
    ///
    /// # Errors
    /// Invalid if it has less bytes than a row, or another context than the stream.
    pub fn with_default<T: Number>(mut self, default_row: &'a impl DevicePtr<T>) -> Result<Self> {
        require_context(default_row, self.stream)?;
        let bytes = default_row.num_bytes();
        if bytes < self.stride {
            let stride = self.stride;
            return invalid(format!(
                "the default row has {bytes} bytes, and rows have {stride}"
            ));
        }
        let (at, lent) = default_row.device_ptr(self.stream);
        // SAFETY: it has a row's bytes, and as in `new`.
        self.rows = unsafe { self.rows.with_default(pointer(at)) };
        self.lent.push(lent);
        Ok(self)
    }

    /// The same, with the size of each value in bytes, also where it has more bytes than a row; 0 of other keys.
    ///
    /// # Errors
    /// Invalid if the slice has another context than the stream.
    pub fn with_sizes(mut self, sizes: &'a mut impl DevicePtrMut<u32>) -> Result<Self> {
        require_context(sizes, self.stream)?;
        self.room = self.room.min(sizes.len());
        let (at, lent) = sizes.device_ptr_mut(self.stream);
        // SAFETY: as in `new`.
        self.rows = unsafe { self.rows.with_sizes(pointer_mut(at)) };
        self.lent.push(lent);
        Ok(self)
    }
}

fn pointer<T>(at: u64) -> *const T {
    std::ptr::with_exposed_provenance(at as usize)
}

fn pointer_mut<T>(at: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

/// Looks keys up in the table of a version, on the stream of the slices. The version is kept until the stream has
/// reached this point.
///
/// # Errors
/// Invalid if slices are too short, have different streams or are of another device than the table, or the stream is
/// being captured into a graph: nothing would keep the slices for the graph's launches. Device.
pub fn look_up<T>(
    version: &Arc<T>,
    in_use: &InUse<T>,
    table: &DeviceTable,
    kv: &KvRecord,
    (keys, rows): (SliceKeys<'_>, SliceRows<'_>),
) -> Result<()> {
    let (n, room, stream) = (keys.len, rows.room, keys.stream);
    if n > room {
        return invalid(format!(
            "{n} keys have rows, statuses or sizes for {room} only"
        ));
    }
    let of = |stream: &CudaStream| (stream.context().ordinal(), stream.cu_stream());
    if of(stream) != of(rows.stream) {
        return invalid("keys and rows are for different streams".to_owned());
    }
    let ordinal = stream.context().ordinal();
    if table.gpu().map(|number| number as usize) != Some(ordinal) {
        return invalid(format!(
            "the view does not lie on GPU number {ordinal}, where the stream is"
        ));
    }
    let capturing = stream.capture_status().map_err(|error| {
        let what = format!("cannot ask whether a stream is captured: {error}");
        Error::new(ErrorKind::Device, what)
    })?;
    if capturing != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        let what = "slices cannot be captured into a graph, which would not keep them; capture a lookup of pointers";
        return invalid(what.to_owned());
    }
    // SAFETY: the stream is one of the table's device, and the table is kept until it has reached this point.
    let stream = unsafe { CallerStream::new(stream.cu_stream().cast()) };
    table.look_up_with(kv, &keys.keys, &rows.rows, stream)?;
    in_use.keep(version, stream).map(drop)
}
