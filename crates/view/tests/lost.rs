//! Devices that fail. One is lost while kernels hold a view: nothing waits for it, and the database continues. Others change
//! files that they have cached.

mod helpers;

use rockmill_testkit::scans as common;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use helpers::*;
use rockmill_core::ErrorKind;
use rockmill_cuda::CudaSettings;
use rockmill_cuda::faults::{Call, DeviceUsage, Faults};
use rockmill_exec::device::Device;
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, ScanEngine, ScanSettings};
use rockmill_testkit::scans::options;
use rockmill_view::{CallerStream, Keys, RingSettings, Rows, Target};
use rust_rocksdb::DB;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn nothing_waits_for_a_device_that_is_lost() {
    for call in [Call::Wait, Call::Copy, Call::Stage] {
        let (done, is_done) = channel();
        let test = thread::spawn(move || {
            lose(call);
            // The receiver is gone if this came too late.
            let _ = done.send(());
        });
        let ended = is_done.recv_timeout(TIMEOUT);
        assert!(ended.is_ok() || test.is_finished(), "{call:?} hangs");
        test.join().expect("it passes");
    }
}

/// Loses the device at the next call of a kind, during a hold.
fn lose(call: Call) {
    let faults = Faults::none();
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let db = DB::open_cf(&options(), dir.path(), ["default"]).expect("the database opens");
    let db = Arc::new(db);
    let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    let view = builder(&database, "default").device(Target::Faulty);
    let view = view.ring(RingSettings::default()).open().expect("a view");
    let (keys, mut rows, mut statuses) = (numbered(1), [0u8; 40], [9u8]);
    // SAFETY: the host's kernels use this memory before a call returns.
    let (keys, rows, stream) = unsafe {
        let rows = Rows::new(rows.as_mut_ptr(), 40, statuses.as_mut_ptr());
        let stream = CallerStream::new(ptr::null_mut());
        (Keys::fixed(keys.as_ptr(), 4, 1), rows, stream)
    };
    let holds = [(); 3].map(|()| view.hold(stream).expect("a hold"));
    holds[0].lookup(&keys, &rows, stream).expect("looked up");
    db.put(b"new", b"1").expect("written");
    faults.break_down(call, 0);
    // It may come before the call that loses the device.
    let _ = holds[1].lookup(&keys, &rows, stream);
    let errors = [
        view.get(&[&numbered(1)]).map(drop),
        view.refresh().map(drop),
        view.lookup(&keys, &rows, stream),
    ];
    for error in errors {
        assert_eq!(
            error.expect_err("the device is lost").kind,
            ErrorKind::Device
        );
    }
    drop(holds);
    view.abort();
    drop(view);
    assert_eq!(faults.usage(), DeviceUsage::default());
    db.put(b"newer", b"2").expect("written");
    assert_eq!(db.get(b"newer").expect("read").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_view_has_the_rows_of_files_whose_cached_bytes_have_changed() {
    let _faults = Faults::none();
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let engine = ScanEngine::new(ScanSettings {
        devices: Device::Kernels(Target::Faulty).into(),
        cuda: CudaSettings {
            cache_bytes: Some(1 << 30),
            ..CudaSettings::default()
        },
        ..ScanSettings::default()
    });
    let engine = engine.expect("an engine");
    let database = directory(dir.path());
    let has_all_rows = || {
        let view = builder(&database, "default").device(Target::Faulty);
        let view = view.engine(Arc::clone(&engine)).open().expect("a view");
        let keys: Vec<_> = (0..5000).map(numbered).collect();
        let refs: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        let values = view.get(&refs).expect("values");
        assert_eq!(values.len(), 5000);
        for (number, value) in values.into_iter().enumerate() {
            assert_eq!(value, Some(vec![number as u8; 40]), "{number}");
        }
    };
    let device = DeviceRuntime::gpu(Target::Faulty).expect("the host");
    let cache = device.file_cache().expect("it has kernels");
    // The engine opens its devices in the background.
    while !cache.is_on() {
        thread::yield_now();
    }
    // The second load keeps the file, and the third one finds it.
    (0..3).for_each(|_| has_all_rows());
    assert!(cache.accounts().hit_bytes > 0);
    for bit in (0..1 << 20).step_by(39_119) {
        let noticed = cache.accounts().mismatches;
        assert!(cache.flip(bit).expect("the device works") > 0, "{bit}");
        has_all_rows();
        assert!(cache.accounts().mismatches > noticed, "{bit}");
        // The next load keeps the file again.
        has_all_rows();
    }
}
