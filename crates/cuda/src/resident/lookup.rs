//! Looks up keys in batches: from device memory on the caller's stream, or from the host's.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rockmill_core::{Error, ErrorKind, Result};

use super::table::DeviceTable;
use crate::driver::ffi::{self, LookupArgs, Stages};
use crate::driver::{Device, DeviceMemory, Download, PinnedBuffer, Stream, altered};
use crate::ring::KvRecord;

/// A type of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Integer {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it has negative ones.
    pub is_signed: bool,
}

/// How integers become keys: a prefix, and the bytes of the integer. Integers that the type of the key does not have,
/// such as negative ones without a sign, are not found.
#[derive(Debug, Clone, Copy)]
pub struct IdForm(ffi::IdForm);

impl IdForm {
    /// Most bytes of a prefix.
    pub const MAX_PREFIX: usize = ffi::MAX_ID_PREFIX as usize;

    const NONE: Self = Self(ffi::IdForm {
        id_bytes: 0,
        is_id_signed: 0,
        key_bytes: 0,
        is_key_signed: 0,
        is_big_endian: 0,
        prefix_bytes: 0,
        prefix: [0; Self::MAX_PREFIX],
    });

    /// Keys of integers of type `id`: `prefix`, and the integer as one of type `key`.
    ///
    /// # Errors
    /// Invalid if the prefix is too long, or no integer has that number of bytes.
    pub fn new(id: Integer, key: Integer, is_big_endian: bool, prefix: &[u8]) -> Result<Self> {
        let is_size = |integer: Integer| matches!(integer.bytes, 1 | 2 | 4 | 8);
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if !is_size(id) || !is_size(key) {
            return invalid("integers have 1, 2, 4 or 8 bytes".to_owned());
        }
        if prefix.len() > Self::MAX_PREFIX {
            let (most, given) = (Self::MAX_PREFIX, prefix.len());
            return invalid(format!(
                "the prefix has {given} bytes; keys of integers have one of at most {most}"
            ));
        }
        let mut bytes = [0; Self::MAX_PREFIX];
        bytes[..prefix.len()].copy_from_slice(prefix);
        Ok(Self(ffi::IdForm {
            id_bytes: id.bytes,
            is_id_signed: id.is_signed.into(),
            key_bytes: key.bytes,
            is_key_signed: key.is_signed.into(),
            is_big_endian: is_big_endian.into(),
            prefix_bytes: prefix.len() as u8,
            prefix: bytes,
        }))
    }

    /// The key of an integer, from the bytes of the integer in memory. The type of the key must have the integer.
    ///
    /// # Panics
    /// If there are fewer bytes than the integer has.
    pub fn key(&self, id: &[u8]) -> Vec<u8> {
        let form = &self.0;
        let id = &id[..form.id_bytes.into()];
        let is_negative = form.is_id_signed != 0 && id.last().is_some_and(|&last| last >> 7 == 1);
        let rest = std::iter::repeat(if is_negative { u8::MAX } else { 0 });
        let mut key = form.prefix[..form.prefix_bytes.into()].to_vec();
        key.extend(id.iter().copied().chain(rest).take(form.key_bytes.into()));
        if form.is_big_endian != 0 {
            key[form.prefix_bytes.into()..].reverse();
        }
        key
    }
}

/// A word of the host's memory, in which lookups leave the status of a key that they could not answer.
#[derive(Debug)]
pub struct Unanswered(PinnedBuffer);

// SAFETY: the word is only used as an atomic one.
unsafe impl Sync for Unanswered {}

impl Unanswered {
    /// No lookup has left one.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: &Device) -> Result<Self> {
        let _current = device.make_current()?;
        PinnedBuffer::new(device, size_of::<u32>()).map(Self)
    }

    /// The status that lookups have left since the last call; 0 if all keys had an answer. It is [`Rows::NEEDS_HOST`],
    /// [`Rows::TOO_SMALL`], or a status that only requests through a ring have.
    pub fn take(&self) -> u8 {
        // SAFETY: the memory has room for the word, is aligned to a page, and is freed with `self`.
        let word = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast()) };
        word.swap(0, Ordering::Acquire) as u8
    }
}

/// Keys in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    bytes: *const u8,
    offsets: *const u64,
    /// Bytes of each key; with offsets, bytes of all keys.
    key_bytes: u64,
    len: u64,
    form: IdForm,
}

impl Keys {
    /// `len` contiguous keys of `key_bytes` bytes each.
    ///
    /// # Safety
    /// The keys lie in device memory at `keys`, and stay there unchanged until every stream that looks them up has
    /// reached this point.
    pub unsafe fn fixed(keys: *const u8, key_bytes: u64, len: u64) -> Self {
        Self {
            bytes: keys,
            offsets: ptr::null(),
            key_bytes,
            len,
            form: IdForm::NONE,
        }
    }

    /// The keys of `len` contiguous integers.
    ///
    /// # Safety
    /// The integers lie in device memory at `ids`, and stay there unchanged as [`Keys::fixed`] requires.
    pub unsafe fn ids(ids: *const u8, form: IdForm, len: u64) -> Self {
        Self {
            bytes: ids,
            offsets: ptr::null(),
            key_bytes: form.0.id_bytes.into(),
            len,
            form,
        }
    }

    /// `len` keys of any length: key `i` is the bytes from `offsets[i]` to `offsets[i + 1]`.
    ///
    /// # Safety
    /// The `len + 1` offsets lie in device memory, ascend, and name bytes of the device's memory at `bytes`. All of it
    /// stays unchanged until every stream that looks the keys up has reached this point.
    pub unsafe fn varied(bytes: *const u8, offsets: *const u64, len: u64) -> Self {
        Self {
            bytes,
            offsets,
            key_bytes: u64::MAX,
            len,
            form: IdForm::NONE,
        }
    }

    /// The same; keys whose offsets are not within `bytes` bytes are not found. For keys of one length it changes
    /// nothing.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        match self.offsets.is_null() {
            true => self,
            false => Self {
                key_bytes: bytes,
                ..self
            },
        }
    }

    /// The `len` keys from number `first` on.
    fn part(&self, first: usize, len: usize) -> Self {
        let offsets = match self.offsets.is_null() {
            true => self.offsets,
            false => self.offsets.wrapping_add(first),
        };
        Self {
            bytes: match self.offsets.is_null() {
                true => self.bytes.wrapping_add(first * self.key_bytes as usize),
                false => self.bytes,
            },
            offsets,
            len: len as u64,
            ..*self
        }
    }
}

/// Target of the values in device memory: a row for each key.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    rows: *mut u8,
    stride: u64,
    statuses: *mut u8,
    default_row: *const u8,
    sizes: *mut u32,
    found: *mut u8,
    unanswered: *mut u32,
    options: u32,
}

impl Rows {
    /// Status of a key that is not in the database.
    pub const NOT_FOUND: u8 = ffi::KEY_NOT_FOUND;
    /// Status of a key whose value is in its row.
    pub const FOUND: u8 = ffi::KEY_FOUND;
    /// Status of a key for which RocksDB must be asked.
    pub const NEEDS_HOST: u8 = ffi::KEY_NEEDS_HOST;
    /// Status of a key whose value has more bytes than a row.
    pub const TOO_SMALL: u8 = ffi::KEY_TOO_SMALL;

    /// Rows of `stride` bytes at `rows`, and a byte for each key's status. Bytes of a row behind its value stay
    /// unchanged, and so do rows of keys without a value.
    ///
    /// # Safety
    /// The device memory has room for a row and a status for each key. No other code uses it until every stream that
    /// looks keys up has reached this point.
    pub unsafe fn new(rows: *mut u8, stride: u64, statuses: *mut u8) -> Self {
        Self {
            rows,
            stride,
            statuses,
            default_row: ptr::null(),
            sizes: ptr::null_mut(),
            found: ptr::null_mut(),
            unanswered: ptr::null_mut(),
            options: 0,
        }
    }

    /// The same; rows of keys that are not in the database are copied from `default_row`.
    ///
    /// # Safety
    /// `default_row` is a row's bytes of device memory, which stay unchanged as [`Rows::new`] requires.
    #[must_use]
    pub unsafe fn with_default(self, default_row: *const u8) -> Self {
        Self {
            default_row,
            ..self
        }
    }

    /// The same, with the size of each value in bytes, also if it has more bytes than a row; 0 for other keys.
    ///
    /// # Safety
    /// There is room for as many numbers as there are keys, as [`Rows::new`] requires.
    #[must_use]
    pub unsafe fn with_sizes(self, sizes: *mut u32) -> Self {
        Self { sizes, ..self }
    }

    /// The same, with a byte for each key: 1 if its value is in its row, else 0. Then `statuses` may be null.
    ///
    /// # Safety
    /// There is room for as many bytes as there are keys, as [`Rows::new`] requires.
    #[must_use]
    pub unsafe fn with_found(self, found: *mut u8) -> Self {
        Self { found, ..self }
    }

    /// The same; the status of a key without an answer is left in `unanswered`.
    ///
    /// # Safety
    /// `unanswered` is one of the device, and lives until every stream that looks keys up has reached this point.
    #[must_use]
    pub unsafe fn with_unanswered(self, unanswered: &Unanswered) -> Self {
        Self {
            unanswered: unanswered.0.as_ptr().cast(),
            ..self
        }
    }

    /// The same; bytes behind a value are zeroed, and so are rows of keys without a value, unless there is a default row
    /// for them.
    #[must_use]
    pub fn cleared(self) -> Self {
        let options = self.options | ffi::LOOKUP_CLEARS;
        Self { options, ..self }
    }

    /// The same; values with fewer bytes than a row have [`Rows::TOO_SMALL`], too.
    #[must_use]
    pub fn exact(self) -> Self {
        let options = self.options | ffi::LOOKUP_EXACT;
        Self { options, ..self }
    }
}

/// Checks that kernels can use the memory.
fn check(keys: &Keys, rows: &Rows, device: &Device) -> Result<()> {
    let n = keys.len;
    if n == 0 {
        return Ok(());
    }
    let (is_varied, has_sizes) = (!keys.offsets.is_null(), !rows.sizes.is_null());
    let (offsets, sizes) = (keys.offsets.cast(), rows.sizes.cast_const().cast());
    let (values, statuses) = (rows.rows.cast_const(), rows.statuses.cast_const());
    let found = rows.found.cast_const();
    let key_bytes = if is_varied { 0 } else { keys.key_bytes };
    // Bytes for each key, or 0 if the pointer may be null; and the alignment.
    let arguments = [
        ("keys", keys.bytes, key_bytes, 1),
        ("offsets", offsets, 8 * u64::from(is_varied), 8),
        ("rows", values, rows.stride, 1),
        ("default row", rows.default_row, 0, 1),
        ("statuses", statuses, u64::from(found.is_null()), 1),
        ("sizes", sizes, 4 * u64::from(has_sizes), 4),
        ("found", found, u64::from(!found.is_null()), 1),
    ];
    for (name, at, bytes, alignment) in arguments {
        let end = n.checked_mul(bytes);
        let end = end.and_then(|bytes| bytes.checked_add(at.addr() as u64));
        let what = if end.is_none() {
            format!("{n} times {bytes} bytes are more than memory has; pass another size")
        } else if at.is_null() && bytes == 0 {
            continue;
        } else if at.is_null() {
            "the pointer is null; pass memory of the view's device".to_owned()
        } else if !at.addr().is_multiple_of(alignment) {
            format!("{at:p} is no multiple of {alignment}; align the memory")
        } else if !device.reaches(at)? {
            format!(
                "the GPU cannot access {at:p}; pass memory of the view's device, or pinned or managed memory"
            )
        } else {
            continue;
        };
        let what = format!("cannot look keys up: {name}: {what}");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(())
}

/// A stream of the caller.
#[derive(Debug, Clone, Copy)]
pub struct CallerStream(*mut c_void);

// SAFETY: streams may be used from any thread.
unsafe impl Send for CallerStream {}
// SAFETY: it is only the address of a stream.
unsafe impl Sync for CallerStream {}

impl CallerStream {
    /// The stream with a `cudaStream_t` or `CUstream`. On the host there are no streams, and it may be null.
    ///
    /// # Safety
    /// The stream is one of the table's device. It lives as long as this value, and the table lives until the stream
    /// has reached this point.
    pub unsafe fn new(stream: *mut c_void) -> Self {
        Self(stream)
    }

    /// The stream.
    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// Result for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult {
    /// Its value.
    Found(Vec<u8>),
    /// It is not in the database.
    NotFound,
    /// RocksDB must be asked.
    NeedsHost,
}

impl DeviceTable {
    /// Looks keys up on the caller's stream. The host does not wait, allocates no memory and copies nothing, so the
    /// call may be captured into a graph.
    ///
    /// # Errors
    /// Invalid if the device cannot access the caller's memory, or a pointer is not aligned; Device.
    pub fn look_up(&self, keys: &Keys, rows: &Rows, stream: CallerStream) -> Result<()> {
        self.look_up_with(&KvRecord::new(0, self, None), keys, rows, stream)
    }

    /// The same, but keys that the table cannot answer are requested through the ring of a record of this table. The
    /// ring is held until the stream has reached this point.
    ///
    /// # Errors
    /// The errors of [`DeviceTable::look_up`].
    pub fn look_up_with(
        &self,
        kv: &KvRecord,
        keys: &Keys,
        rows: &Rows,
        stream: CallerStream,
    ) -> Result<()> {
        let _current = self.device.make_current()?;
        check(keys, rows, &self.device)?;
        let stages = Stages::new(&self.device, stream.0, ptr::null_mut(), 0);
        self.launch(kv, keys, rows, &stages)
    }

    fn launch(&self, kv: &KvRecord, keys: &Keys, rows: &Rows, stages: &Stages<'_>) -> Result<()> {
        let args = LookupArgs {
            kv: kv.kernel_form(),
            keys: keys.bytes,
            key_offsets: keys.offsets,
            key_bytes: keys.key_bytes,
            n: keys.len,
            rows: rows.rows,
            stride: rows.stride,
            default_row: rows.default_row,
            statuses: rows.statuses,
            sizes: rows.sizes,
            found: rows.found,
            unanswered: rows.unanswered,
            form: keys.form.0,
            options: rows.options,
            unused: 0,
        };
        // SAFETY: the creator of keys and rows has stated that their memory exists; the slots are those of the table.
        unsafe { stages.look_up(&args) }
    }

    /// Looks up keys in the host's memory, and waits for their values.
    ///
    /// # Errors
    /// Device; Verification if an answer is impossible.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<LookupResult>> {
        /// Rows of keys that are looked up together.
        const ROWS_BYTES: usize = 64 << 20;
        let (mut bytes, mut offsets) = (Vec::new(), vec![0u64]);
        for key in keys {
            bytes.extend_from_slice(key);
            offsets.push(bytes.len() as u64);
        }
        let _current = self.device.make_current()?;
        let stream = self.stream.lock();
        let stream = &*stream;
        let n = keys.len();
        let key_memory = self.upload(&bytes, stream)?;
        let offset_memory = self.upload(&offsets, stream)?;
        let statuses = self.room(n, stream)?;
        let sizes = self.room(n * size_of::<u32>(), stream)?;
        // SAFETY: the memory was allocated for them, and lives until the stream has been waited for.
        let (all, rows) = unsafe {
            let offsets = offset_memory.as_ptr().cast_const().cast();
            let rows = Rows::new(ptr::null_mut(), 0, statuses.as_ptr());
            (
                Keys::varied(key_memory.as_ptr(), offsets, n as u64),
                rows.with_sizes(sizes.as_ptr().cast()),
            )
        };
        // Without room in the rows, only sizes are returned.
        let stages = stream.stages(ptr::null_mut(), 0);
        let kv = KvRecord::new(0, self, None);
        self.launch(&kv, &all, &rows, &stages)?;
        let (mut states, mut lens) = (vec![0u8; n], vec![0u32; n]);
        download(&statuses, &mut states, stream)?;
        download(&sizes, &mut lens, stream)?;
        let mut answers = Vec::with_capacity(n);
        let mut first = 0;
        while first < n {
            let (mut stride, mut end) = (0, first);
            while end < n {
                let wider = stride.max(lens[end] as usize);
                if end > first && wider * (end + 1 - first) > ROWS_BYTES {
                    break;
                }
                (stride, end) = (wider, end + 1);
            }
            let memory = self.room(stride * (end - first), stream)?;
            let mut values = vec![0u8; stride * (end - first)];
            // SAFETY: as above.
            let rows = unsafe { Rows::new(memory.as_ptr(), stride as u64, statuses.as_ptr()) };
            self.launch(&kv, &all.part(first, end - first), &rows, &stages)?;
            download(&memory, &mut values, stream)?;
            for i in first..end {
                let (at, len) = ((i - first) * stride, lens[i] as usize);
                answers.push(match states[i] {
                    Rows::FOUND | Rows::TOO_SMALL => {
                        LookupResult::Found(values[at..at + len].to_vec())
                    }
                    Rows::NOT_FOUND => LookupResult::NotFound,
                    Rows::NEEDS_HOST => LookupResult::NeedsHost,
                    _ => return Err(altered("the status of a key is invalid")),
                });
            }
            first = end;
        }
        Ok(answers)
    }

    /// Zeroed memory for `bytes` bytes. Its last word may be read whole, and rows are copied back as a whole.
    fn room(&self, bytes: usize, stream: &Stream) -> Result<DeviceMemory> {
        let bytes = bytes.max(1).next_multiple_of(size_of::<u64>());
        let memory = DeviceMemory::for_view(&self.device, None, bytes as u64)?;
        // SAFETY: the memory is as long, and its owner waits for the stream.
        unsafe { stream.fill(memory.as_ptr().cast(), 0, bytes)? };
        Ok(memory)
    }

    fn upload<T: Copy>(&self, values: &[T], stream: &Stream) -> Result<DeviceMemory> {
        let memory = self.room(size_of_val(values), stream)?;
        // SAFETY: there is room, and the owner of the memory waits for the stream.
        unsafe { stream.upload(memory.as_ptr(), values.as_ptr().cast(), size_of_val(values))? };
        Ok(memory)
    }
}

/// Copies the first values of some memory back.
fn download<T: Copy>(from: &DeviceMemory, values: &mut [T], stream: &Stream) -> Result<()> {
    let copy = Download {
        from: from.as_ptr(),
        to: values.as_mut_ptr().cast(),
        len: size_of_val(values),
    };
    // SAFETY: the memory was allocated for as many values, which are plain numbers.
    unsafe { stream.download(&mut [copy]) }
}
