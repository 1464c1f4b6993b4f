//! Calls of the benchmark's kernels.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use rockmill_core::{Error, Result};
use rockmill_cuda::DeviceTable;
use rockmill_view::{CallerStream, Keys, Rows, View};

use super::super::data::KEY_BYTES;
use super::super::kernels::{
    CheckRows, DenseLists, DenseValues, Gather, ListArgs, MakeKeys, WalkArgs,
};
use super::{Gpu, Memory, Part, Resident};

/// Where values lie.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    /// In a view.
    Resident(&'a Resident),
    /// Contiguous, by number.
    Dense(Part<'a, u8>),
    /// Contiguous, in the order of requests.
    Ordered(Part<'a, u8>),
}

/// Location of adjacency lists.
#[derive(Clone, Copy)]
pub enum Lists<'a> {
    /// In a view.
    Resident(&'a Resident),
    /// Contiguous, by vertex: the begin of each list, and the end of the last.
    Dense(Part<'a, u64>, Part<'a, u32>),
    /// Contiguous, in the order of requests.
    Ordered(Part<'a, u64>, Part<'a, u32>),
}

/// Keys to look up, by number and as bytes, and the memory for their values.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub numbers: Part<'a, u64>,
    pub keys: Part<'a, u8>,
    pub rows: Part<'a, u8>,
    pub statuses: Part<'a, u8>,
    pub value_bytes: usize,
}

impl Batch<'_> {
    fn check(&self) {
        let n = self.numbers.len;
        assert!(self.keys.len >= n * KEY_BYTES && self.statuses.len >= n);
        assert!(self.rows.len >= n * self.value_bytes);
    }
}

/// Walks from value to value.
pub struct Walk<'a> {
    pub values: Values<'a>,
    pub numbers: Part<'a, u64>,
    pub sums: Part<'a, u64>,
    pub keys: u64,
    pub steps: u32,
    pub words: u32,
    /// Ticks of each step of the first walk.
    pub step_ticks: Option<Part<'a, u32>>,
}

/// Requests to the host, `each` of them by each tile.
pub struct Requests<'a> {
    pub numbers: Part<'a, u64>,
    pub each: u32,
    /// Version of the values to put; without it, values are read.
    pub puts: Option<u64>,
    pub words: u32,
    pub period_ns: u64,
    pub rows: Part<'a, u64>,
    pub times_ns: Part<'a, u32>,
}

impl Gpu {
    /// The keys with these numbers.
    ///
    /// # Errors
    /// Device.
    pub fn keys(&self, numbers: Part<'_, u64>) -> Result<Memory<u8>> {
        let keys = self.memory(numbers.len * KEY_BYTES)?;
        let make = MakeKeys {
            numbers: numbers.values,
            keys: keys.all().values,
        };
        // SAFETY: there is room for all keys.
        let code =
            unsafe { (self.table.make_keys)(&self.exec, numbers.len as u64, &raw const make) };
        self.done(code)?;
        Ok(keys)
    }

    /// Counts rows that are not values of their keys with a version up to `max_version`. Dense rows have no statuses.
    ///
    /// # Errors
    /// Device.
    pub fn wrong_rows(
        &self,
        batch: &Batch<'_>,
        has_statuses: bool,
        max_version: u64,
    ) -> Result<u64> {
        batch.check();
        self.counted(|wrong| {
            let check = CheckRows {
                numbers: batch.numbers.values,
                rows: batch.rows.values.cast_const().cast(),
                statuses: if has_statuses {
                    batch.statuses.values
                } else {
                    ptr::null()
                },
                words: (batch.value_bytes / size_of::<u64>()) as u64,
                max_version,
                wrong,
            };
            let n = batch.numbers.len as u64;
            // SAFETY: the batch was checked.
            unsafe { (self.table.check_rows)(&self.exec, n, &raw const check) }
        })
    }

    /// Copies dense values by their numbers, all of which are below the number of values.
    ///
    /// # Errors
    /// Device.
    pub fn gather(&self, batch: &Batch<'_>, from: Part<'_, u8>) -> Result<()> {
        batch.check();
        let gather = Gather {
            numbers: batch.numbers.values,
            from: DenseValues {
                values: from.values,
                stride: batch.value_bytes as u64,
                is_ordered: false,
            },
            rows: batch.rows.values,
        };
        // SAFETY: the batch was checked, and the benchmark draws only numbers of values.
        let code =
            unsafe { (self.table.gather)(&self.exec, batch.numbers.len as u64, &raw const gather) };
        self.done(code)
    }

    /// Looks keys up as users do.
    ///
    /// # Errors
    /// Device.
    pub fn look_up(&self, view: &View, batch: &Batch<'_>) -> Result<()> {
        batch.check();
        // SAFETY: the batch was checked, and the stream is waited for.
        unsafe {
            let keys = Keys::fixed(
                batch.keys.values,
                KEY_BYTES as u64,
                batch.numbers.len as u64,
            );
            let stride = batch.value_bytes as u64;
            let rows = Rows::new(batch.rows.values, stride, batch.statuses.values);
            view.lookup(&keys, &rows, self.caller_stream())?;
        }
        self.done(0)
    }

    /// Holds a view for kernels.
    ///
    /// # Errors
    /// Device.
    pub fn hold(&self, view: &View) -> Result<Resident> {
        // SAFETY: every kernel is waited for, so the stream is idle before either is dropped.
        let stream = unsafe { self.caller_stream() };
        Ok(Resident::Held(Box::new(view.hold(stream)?)))
    }

    /// # Safety
    /// The stream is used for views that are dropped before this.
    unsafe fn caller_stream(&self) -> CallerStream {
        // SAFETY: as the caller says.
        unsafe { CallerStream::new(self.stream.as_ptr()) }
    }

    /// Looks keys up with `lanes` lanes each: as the library does, or with `kv.get` in a kernel.
    ///
    /// # Errors
    /// Device.
    pub fn look_up_with(
        &self,
        lanes: u32,
        in_kernel: bool,
        from: &Resident,
        batch: &Batch<'_>,
    ) -> Result<()> {
        batch.check();
        let record = from.record();
        let look_up = if in_kernel {
            self.table.get
        } else {
            self.table.look_up
        };
        // SAFETY: the batch was checked, and the memory of the lookups lives.
        let code = unsafe {
            look_up(
                &self.exec,
                lanes,
                batch.numbers.len as u64,
                &raw const record,
                batch.keys.values,
                batch.rows.values,
                batch.value_bytes as u64,
                batch.statuses.values,
            )
        };
        self.done(code)
    }

    /// Walks. Returns how many walks found anything but a value.
    ///
    /// # Errors
    /// Device.
    pub fn walk(&self, walk: &Walk<'_>) -> Result<u64> {
        let n = walk.numbers.len;
        assert!(walk.sums.len >= n);
        assert!(
            walk.step_ticks
                .is_none_or(|ticks| ticks.len >= walk.steps as usize)
        );
        let mut record = MaybeUninit::uninit();
        let (view, part, is_ordered) = match walk.values {
            Values::Resident(from) => (record.write(from.record()) as *const _, None, false),
            Values::Dense(part) => (ptr::null(), Some(part), false),
            Values::Ordered(part) => (ptr::null(), Some(part), true),
        };
        let stride = u64::from(walk.words) * size_of::<u64>() as u64;
        self.counted(|wrong| {
            let args = WalkArgs {
                view,
                dense: DenseValues {
                    values: part.map_or(ptr::null(), |part| part.values),
                    stride,
                    is_ordered,
                },
                numbers: walk.numbers.values,
                sums: walk.sums.values,
                keys: walk.keys,
                steps: walk.steps,
                words: walk.words,
                step_ticks: walk
                    .step_ticks
                    .map_or(ptr::null_mut(), |ticks| ticks.values),
                wrong,
            };
            // SAFETY: there is room for sums and ticks, and the numbers are below that of dense values.
            unsafe { (self.table.walk)(&self.exec, n as u64, &raw const args) }
        })
    }

    /// Finds the next frontier of a breadth-first search. Returns its length.
    ///
    /// # Errors
    /// Device.
    pub fn expand(
        &self,
        lists: Lists<'_>,
        frontier: Part<'_, u32>,
        level: u32,
        levels: Part<'_, u32>,
        next: Part<'_, u32>,
    ) -> Result<usize> {
        assert!(next.len >= levels.len);
        let len = self.with_lists(lists, |lists| {
            self.counted(|len| {
                // SAFETY: each vertex is in a frontier once, so there is room; lists have vertices of the graph.
                unsafe {
                    (self.table.expand)(
                        &self.exec,
                        frontier.len as u64,
                        lists,
                        frontier.values,
                        level,
                        levels.values,
                        next.values,
                        len,
                    )
                }
            })
        })?;
        Ok(len as usize)
    }

    /// Adds shares of the ranks of `vertices` to the sums of their neighbours.
    ///
    /// # Errors
    /// Device.
    pub fn share_rank(
        &self,
        lists: Lists<'_>,
        vertices: Range<usize>,
        ranks: Part<'_, u64>,
        shares: Part<'_, u64>,
    ) -> Result<()> {
        assert!(vertices.end <= ranks.len && ranks.len == shares.len);
        let (n, first) = (vertices.len() as u64, vertices.start as u32);
        self.with_lists(lists, |lists| {
            // SAFETY: there is a rank and a share for each vertex of the graph.
            let code = unsafe {
                (self.table.share_rank)(&self.exec, n, lists, first, ranks.values, shares.values)
            };
            self.done(code)
        })
    }

    /// Computes new ranks from the sums that vertices were given, and zeroes the sums.
    ///
    /// # Errors
    /// Device.
    pub fn sum_ranks(&self, ranks: Part<'_, u64>, shares: Part<'_, u64>) -> Result<()> {
        assert!(ranks.len == shares.len);
        let n = ranks.len as u64;
        // SAFETY: both have `n` numbers.
        let code = unsafe { (self.table.sum_ranks)(&self.exec, n, ranks.values, shares.values) };
        self.done(code)
    }

    fn with_lists<R>(&self, lists: Lists<'_>, work: impl FnOnce(*const ListArgs) -> R) -> R {
        let mut record = MaybeUninit::uninit();
        let (view, dense) = match lists {
            Lists::Resident(from) => (record.write(from.record()) as *const _, None),
            Lists::Dense(offsets, vertices) => (ptr::null(), Some((offsets, vertices, false))),
            Lists::Ordered(offsets, vertices) => (ptr::null(), Some((offsets, vertices, true))),
        };
        let args = ListArgs {
            view,
            dense: DenseLists {
                offsets: dense.map_or(ptr::null(), |(offsets, ..)| offsets.values),
                vertices: dense.map_or(ptr::null(), |(_, vertices, _)| vertices.values),
                is_ordered: dense.is_some_and(|(.., is_ordered)| is_ordered),
            },
        };
        work(&raw const args)
    }

    /// Sends requests to the host. Returns how many were answered wrongly.
    ///
    /// # Errors
    /// Device.
    pub fn request(&self, from: &Resident, requests: &Requests<'_>) -> Result<u64> {
        let n = requests.numbers.len;
        let tiles = n / requests.each as usize;
        assert!(requests.times_ns.len >= n);
        assert!(requests.rows.len >= tiles * requests.words as usize);
        let record = from.record();
        self.counted(|wrong| {
            // SAFETY: there is a row for each tile and a time for each request.
            unsafe {
                (self.table.request)(
                    &self.exec,
                    tiles as u64,
                    &raw const record,
                    requests.numbers.values,
                    requests.each,
                    requests.puts.unwrap_or(0),
                    requests.words,
                    requests.period_ns,
                    requests.rows.values,
                    requests.times_ns.values,
                    wrong,
                )
            }
        })
    }

    /// Looks keys up with `kv.get` in a kernel that first puts a value of `version` for some of the keys. Returns how
    /// many puts were not done.
    ///
    /// # Errors
    /// Device.
    pub fn mix(
        &self,
        from: &Resident,
        batch: &Batch<'_>,
        put_every: u32,
        version: u64,
    ) -> Result<u64> {
        batch.check();
        let record = from.record();
        self.counted(|wrong| {
            // SAFETY: the batch was checked, and the memory of the lookups lives.
            unsafe {
                (self.table.mix)(
                    &self.exec,
                    batch.numbers.len as u64,
                    &raw const record,
                    batch.numbers.values,
                    batch.keys.values,
                    batch.rows.values,
                    batch.value_bytes as u64,
                    batch.statuses.values,
                    put_every.max(1),
                    version,
                    wrong,
                )
            }
        })
    }

    /// Makes a table of the keys below `keys` on the device.
    ///
    /// # Errors
    /// Device; Internal if a key did not fit.
    pub fn place(&self, keys: u64, value_bytes: usize) -> Result<Resident> {
        const BUCKET_BYTES: u64 = 64;
        let slot_bytes = DeviceTable::slot_bytes(keys);
        let word = size_of::<u64>() as u64;
        let slots = self.memory::<u64>((slot_bytes / word) as usize)?;
        let record_bytes = DeviceTable::record_bytes(KEY_BYTES as u64, value_bytes as u64) * keys;
        // Kernels read ahead, into the next record.
        let behind = DeviceTable::READ_BEHIND;
        let records = self.memory::<u64>(((record_bytes + behind) / word) as usize)?;
        let mut record = MaybeUninit::uninit();
        let wrong = self.counted(|wrong| {
            // SAFETY: there is room for the slots and records of all keys, and for the record of the table.
            unsafe {
                (self.table.place)(
                    &self.exec,
                    keys,
                    slots.all().values,
                    slot_bytes / BUCKET_BYTES,
                    records.all().values.cast(),
                    (value_bytes / size_of::<u64>()) as u32,
                    wrong,
                    record.as_mut_ptr(),
                )
            }
        })?;
        if wrong > 0 {
            return Err(Error::internal(
                "a table of numbered keys has no room for some",
            ));
        }
        // SAFETY: the function has written it.
        let record = unsafe { record.assume_init() };
        Ok(Resident::Made {
            table: Box::new(record),
            _memory: [slots, records],
        })
    }
}
