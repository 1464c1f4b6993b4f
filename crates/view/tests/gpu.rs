//! Lookups in memory of a GPU, by pointer and in slices of cudarc. They need a GPU that ROCKMILL_TEST_DEVICE names.

mod helpers;

use rockmill_testkit::scans as common;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use helpers::*;
use rockmill_core::{ErrorKind, Lock};
use rockmill_live::LiveDatabase;
use rockmill_scan::Database;
use rockmill_testkit::machine::skipped;
use rockmill_testkit::scans::options;
use rockmill_view::{CallerStream, Keys, RingSettings, Rows, SliceKeys, SliceRows, Target, View};
use rust_rocksdb::DB;

const KEY_BYTES: u64 = 4;
const ROW_BYTES: usize = 40;

/// Tests run one after another: cudarc's work in the default stream to create another one breaks a capture.
static ALONE: Lock<()> = Lock::new(());

/// A stream of the GPU that tests run on; otherwise the test counts as skipped.
fn stream() -> Option<(Arc<CudaStream>, MutexGuard<'static, ()>)> {
    let Target::Cuda(number) = target() else {
        skipped("ROCKMILL_TEST_DEVICE names no GPU");
        return None;
    };
    let alone = ALONE.lock();
    let context = CudaContext::new(number as usize).expect("the GPU is there");
    Some((context.new_stream().expect("a stream"), alone))
}

fn of_caller(stream: &CudaStream) -> CallerStream {
    // SAFETY: the stream is one of the GPU that tests run on, and each test waits for it.
    unsafe { CallerStream::new(stream.cu_stream().cast()) }
}

fn view_of(path: &Path) -> View {
    with_rows(path, &options(), |_| {});
    builder(&directory(path), "default").open().expect("a view")
}

/// Memory of the GPU for some keys and their values, and its addresses.
struct Memory {
    keys: CudaSlice<u8>,
    rows: CudaSlice<u8>,
    statuses: CudaSlice<u8>,
}

impl Memory {
    fn new(stream: &Arc<CudaStream>, numbers: &[u32]) -> Self {
        let keys: Vec<u8> = numbers
            .iter()
            .flat_map(|&number| numbered(number))
            .collect();
        Self {
            keys: stream.clone_htod(&keys).expect("keys"),
            rows: stream.alloc_zeros(numbers.len() * ROW_BYTES).expect("rows"),
            statuses: stream.alloc_zeros(numbers.len()).expect("statuses"),
        }
    }

    /// Changes the keys.
    fn put(&mut self, stream: &Arc<CudaStream>, numbers: &[u32]) {
        let keys: Vec<u8> = numbers
            .iter()
            .flat_map(|&number| numbered(number))
            .collect();
        stream.memcpy_htod(&keys, &mut self.keys).expect("copied");
    }

    /// The same as pointers, which live as long as `self`.
    fn pointers(&mut self, stream: &CudaStream) -> (Keys, Rows) {
        let n = self.statuses.len() as u64;
        let keys = self.keys.device_ptr(stream).0 as *const u8;
        let rows = self.rows.device_ptr_mut(stream).0 as *mut u8;
        let statuses = self.statuses.device_ptr_mut(stream).0 as *mut u8;
        // SAFETY: there is room for the rows of all keys, and each test waits for the stream.
        unsafe {
            let rows = Rows::new(rows, ROW_BYTES as u64, statuses);
            (Keys::fixed(keys, KEY_BYTES, n), rows)
        }
    }

    /// Result for each key: the bytes of its row, if it has a value.
    fn found(&self, stream: &Arc<CudaStream>) -> Vec<Option<Vec<u8>>> {
        let rows = stream.clone_dtoh(&self.rows).expect("copied");
        let statuses = stream.clone_dtoh(&self.statuses).expect("copied");
        let both = rows.chunks(ROW_BYTES).zip(statuses);
        let value = |(row, status): (&[u8], u8)| match status {
            Rows::FOUND => Some(row.to_vec()),
            status => {
                assert_eq!(status, Rows::NOT_FOUND);
                None
            }
        };
        both.map(value).collect()
    }
}

fn value(number: u32) -> Option<Vec<u8>> {
    Some(vec![number as u8; ROW_BYTES])
}

#[test]
fn a_pointer_that_the_gpu_does_not_reach_is_refused_also_while_a_graph_is_captured() {
    let Some((stream, _alone)) = stream() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let view = view_of(dir.path());
    let mut memory = Memory::new(&stream, &[1, 2]);
    let (keys, rows) = memory.pointers(&stream);
    let mut host = vec![0u64; 1000];
    let here = host.as_mut_ptr().cast::<u8>();
    // SAFETY: none of these lookups reads or writes anything, since all of them are refused.
    let refused = unsafe {
        let offsets = Keys::varied(
            memory.keys.device_ptr(&stream).0 as *const u8,
            here.cast(),
            2,
        );
        let statuses = memory.statuses.device_ptr_mut(&stream).0 as *mut u8;
        [
            (Keys::fixed(here, KEY_BYTES, 2), rows, "keys"),
            (offsets, rows, "offsets"),
            (keys, Rows::new(here, ROW_BYTES as u64, statuses), "rows"),
            (keys, Rows::new(statuses, 1, here), "statuses"),
            (keys, rows.with_default(here), "default row"),
            (keys, rows.with_sizes(here.cast()), "sizes"),
        ]
    };
    let hold = view.hold(of_caller(&stream)).expect("a hold");
    let refuse_all = || {
        for (keys, rows, name) in &refused {
            let error = hold.lookup(keys, rows, of_caller(&stream));
            let error = error.expect_err("the GPU cannot access it");
            assert_eq!(error.kind, ErrorKind::Invalid);
            let sentence = format!("{name}: the GPU cannot access 0x");
            assert!(error.what.contains(&sentence), "{error}");
        }
    };
    refuse_all();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).expect("captured");
    refuse_all();
    let looked_up = hold.lookup(&keys, &rows, of_caller(&stream));
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    looked_up.expect("looked up");
    let graph = graph.expect("nothing has broken the capture");
    graph.expect("a graph").launch().expect("launched");
    assert_eq!(memory.found(&stream), [value(1), value(2)]);
}

#[test]
fn pinned_and_managed_memory_are_reached_and_that_of_another_gpu_is_not() {
    let Some((stream, _alone)) = stream() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let view = view_of(dir.path());
    let mut memory = Memory::new(&stream, &[0; 2]);
    let (_, rows) = memory.pointers(&stream);
    let bytes = [numbered(3), numbered(5000)].concat();
    let context = stream.context();
    // SAFETY: both are filled before they are read.
    let (mut pinned, mut managed) = unsafe {
        let pinned = context.alloc_pinned_with_flags::<u8>(bytes.len(), 0);
        let managed = context.alloc_unified::<u8>(bytes.len(), true);
        (pinned.expect("memory"), managed.expect("memory"))
    };
    pinned
        .as_mut_slice()
        .expect("bytes")
        .copy_from_slice(&bytes);
    managed
        .as_mut_slice()
        .expect("bytes")
        .copy_from_slice(&bytes);
    let pinned_at = pinned.as_ptr().expect("a pointer");
    let managed_at = managed.as_slice().expect("bytes").as_ptr();
    for at in [pinned_at, managed_at] {
        stream.memset_zeros(&mut memory.statuses).expect("cleared");
        // SAFETY: both keys are there, and the stream is waited for.
        let keys = unsafe { Keys::fixed(at, KEY_BYTES, 2) };
        let looked_up = view.lookup(&keys, &rows, of_caller(&stream));
        looked_up.expect("looked up");
        assert_eq!(memory.found(&stream), [value(3), None]);
    }
    let gpus = CudaContext::device_count().expect("a number") as usize;
    let Some(other) = (0..gpus).find(|&gpu| gpu != context.ordinal()) else {
        skipped("there is one GPU only");
        return;
    };
    let other = CudaContext::new(other).expect("it is there");
    let other = other.default_stream();
    let there = other.clone_htod(&bytes).expect("keys");
    // SAFETY: both keys are there; the lookup is refused.
    let keys = unsafe { Keys::fixed(there.device_ptr(&other).0 as *const u8, KEY_BYTES, 2) };
    context.bind_to_thread().expect("bound");
    let error = view.lookup(&keys, &rows, of_caller(&stream));
    let error = error.expect_err("the GPU cannot access it");
    assert!(
        error.what.contains("keys: the GPU cannot access"),
        "{error}"
    );
}

#[test]
fn a_graph_looks_up_other_keys_in_the_version_that_it_was_captured_with() {
    let Some((stream, _alone)) = stream() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let db = DB::open_cf(&options(), dir.path(), ["default"]).expect("the database opens");
    let db = Arc::new(db);
    let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    for has_ring in [false, true] {
        let mut builder = builder(&database, "default");
        if has_ring {
            builder = builder.ring(RingSettings::default());
        }
        let view = builder.open().expect("a view");
        let mut memory = Memory::new(&stream, &[0; 4]);
        let (keys, rows) = memory.pointers(&stream);
        stream.synchronize().expect("done");
        let hold = view.hold(of_caller(&stream)).expect("a hold");
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).expect("captured");
        let looked_up = hold.lookup(&keys, &rows, of_caller(&stream));
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        looked_up.expect("looked up");
        let graph = graph.expect("captured").expect("a graph");
        let first = 10 * u32::from(has_ring);
        for number in first..first + 3 {
            // Entries written now are not in the version of the graph.
            db.put(numbered(number), [255; ROW_BYTES]).expect("written");
            db.flush().expect("flushed");
            view.refresh().expect("refreshed");
            memory.put(&stream, &[number, number + 100, 4999, 6000]);
            graph.launch().expect("launched");
            let expected = [value(number), value(number + 100), value(4999), None];
            assert_eq!(memory.found(&stream), expected);
            let newest = view.lookup(&keys, &rows, of_caller(&stream));
            newest.expect("looked up");
            assert_eq!(memory.found(&stream)[0], Some(vec![255; ROW_BYTES]));
        }
        stream.synchronize().expect("done");
        drop(graph);
        drop(hold);
    }
}

#[test]
fn slices_are_looked_up_without_unsafe_code() {
    let Some((stream, _alone)) = stream() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let view = view_of(dir.path());
    let mut memory = Memory::new(&stream, &[7, 5000, 8]);
    let keys = SliceKeys::fixed(&memory.keys, 4, &stream).expect("whole keys");
    let rows = SliceRows::new(&mut memory.rows, ROW_BYTES, &mut memory.statuses, &stream);
    let rows = rows.expect("one context");
    view.lookup_slices(keys, rows).expect("looked up");
    assert_eq!(memory.found(&stream), [value(7), None, value(8)]);

    // The second key is empty, and the last two lie outside.
    let offsets = [0u64, 4, 4, 12, 13, 12];
    let offsets = stream.clone_htod(&offsets).expect("offsets");
    let mut numbers = stream.alloc_zeros::<f32>(5 * 10).expect("rows");
    let mut statuses = stream.alloc_zeros::<u8>(5).expect("statuses");
    let mut sizes = stream.alloc_zeros::<u32>(5).expect("sizes");
    let default_row = stream.clone_htod(&[1u8; ROW_BYTES]).expect("a row");
    let keys = SliceKeys::varied(&memory.keys, &offsets, &stream).expect("offsets");
    let rows = SliceRows::new(&mut numbers, ROW_BYTES, &mut statuses, &stream);
    let rows = rows.and_then(|rows| rows.with_sizes(&mut sizes));
    let rows = rows.and_then(|rows| rows.with_default(&default_row));
    let hold = view.hold(of_caller(&stream)).expect("a hold");
    hold.lookup_slices(keys, rows.expect("whole rows"))
        .expect("looked up");
    assert_eq!(
        stream.clone_dtoh(&statuses).expect("copied"),
        [1, 0, 0, 0, 0]
    );
    assert_eq!(stream.clone_dtoh(&sizes).expect("copied"), [40, 0, 0, 0, 0]);
    let numbers = stream.clone_dtoh(&numbers).expect("copied");
    let row = |byte| [f32::from_le_bytes([byte; 4]); 10];
    assert_eq!(numbers, [row(7), row(1), row(1), row(1), row(1)].concat());
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let Some((stream, _alone)) = stream() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let view = view_of(dir.path());
    let on_host = builder(&directory(dir.path()), "default").device(Target::Host);
    let on_host = on_host.open().expect("a view");
    let mut memory = Memory::new(&stream, &[1, 2]);
    let mut short = stream.alloc_zeros::<u32>(1).expect("sizes");
    let other = stream.context().new_stream().expect("a stream");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.synchronize().expect("done");
    let whole = SliceKeys::fixed(&memory.keys, 3, &stream).expect_err("no whole keys");
    assert!(
        whole.what.contains("8 bytes are no whole keys of 3"),
        "{whole}"
    );
    let keys = || SliceKeys::fixed(&memory.keys, 4, &stream).expect("keys");
    let (rows, statuses) = (&mut memory.rows, &mut memory.statuses);
    let same_gpu = CudaContext::new(stream.context().ordinal()).expect("it is there");
    let same_gpu = same_gpu.new_stream().expect("a stream");
    let foreign = SliceKeys::fixed(&memory.keys, 4, &same_gpu).expect_err("another context");
    assert!(foreign.what.contains("different contexts"), "{foreign}");
    let invalid = |looked_up: rockmill_core::Result<()>, sentence: &str| {
        let error = looked_up.expect_err(sentence);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.what.contains(sentence), "{error}");
    };
    let wide = SliceRows::new(rows, ROW_BYTES + 1, statuses, &stream).expect("rows");
    invalid(view.lookup_slices(keys(), wide), "2 keys have rows");
    let sized = SliceRows::new(rows, ROW_BYTES, statuses, &stream);
    let sized = sized
        .and_then(|rows| rows.with_sizes(&mut short))
        .expect("rows");
    invalid(view.lookup_slices(keys(), sized), "for 1 only");
    let elsewhere = SliceRows::new(rows, ROW_BYTES, statuses, &other).expect("rows");
    invalid(view.lookup_slices(keys(), elsewhere), "different streams");
    let good = SliceRows::new(rows, ROW_BYTES, statuses, &stream).expect("rows");
    invalid(on_host.lookup_slices(keys(), good), "does not lie on GPU");
    let good = SliceRows::new(rows, ROW_BYTES, statuses, &stream).expect("rows");
    let keys = keys();
    stream.begin_capture(mode).expect("captured");
    invalid(view.lookup_slices(keys, good), "cannot be captured");
    // Whether the slices' events were recorded in it does not matter here.
    let _ = stream.end_capture(CUgraphInstantiate_flags(0));
}
