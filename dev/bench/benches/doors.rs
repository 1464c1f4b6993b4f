//! Measures the cost of the C interface over the Rust one: the same job through both, in turns.
//!
//! ```text
//! cargo bench -p rockmill-bench --bench doors -- [DIR [ROUNDS]]
//! ```
//!
//! RocksDB compacts copies of one database of 200 MB without compression, in `DIR` (`/dev/shm` by default), one job
//! each. Half of the jobs go through `rockmill::Service`. The others go through the functions of `rockmill.h`, with the
//! same code around them as in `rockmill/rocksdb_c.h`. Prints wall and CPU time of each compaction, their medians and
//! minima.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use rockmill_capi::{
    CJobInfo, CResult, Handle, Status, rm_free, rm_service_close, rm_service_on_installation,
    rm_service_open, rm_service_schedule, rm_service_stats_json, rm_service_wait,
};
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    CompactionService, CompactionServiceJobInfo, CompactionServiceJobStatus, DB, DBCompressionType,
    EnvPriority, Options, ScheduleResponse,
};
use rustix::time::{ClockId, clock_gettime};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 184;
const FILES: u64 = 4;
const DEFAULT_ROUNDS: usize = 10;
const SETTINGS: &CStr = c"min_job_bytes=0;threads=2";

type Error = Box<dyn std::error::Error>;

/// A service behind the functions of `rockmill.h`.
struct ThroughC(*mut Handle);

// SAFETY: every function may be called from any thread.
unsafe impl Send for ThroughC {}
// SAFETY: as above.
unsafe impl Sync for ThroughC {}

impl CompactionService for ThroughC {
    fn name(&self) -> &CStr {
        c"Rockmill"
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        let text = |bytes: &[u8]| CString::new(bytes).expect("RocksDB's texts have no zeros");
        let (name, session) = (text(info.db_name()), text(info.db_session_id()));
        let job = CJobInfo {
            struct_size: size_of::<CJobInfo>(),
            db_name: name.as_ptr(),
            db_session_id: session.as_ptr(),
            job_id: info.job_id(),
            cf_id: info.cf_id(),
            compaction_reason: info.compaction_reason().map_or(-1, |reason| reason as i32),
            base_input_level: info.base_input_level(),
            output_level: info.output_level(),
            is_full_compaction: u8::from(info.is_full_compaction()),
            is_manual_compaction: u8::from(info.is_manual_compaction()),
            is_bottommost_level: u8::from(info.is_bottommost_level()),
            is_bottom_priority: u8::from(info.priority() == Some(EnvPriority::Bottom)),
            rocksdb_version: 0,
            plugins: ptr::null(),
            picked_compression: 0,
        };
        let mut id: *mut c_char = ptr::null_mut();
        // SAFETY: all arguments live during the call.
        let status = unsafe {
            rm_service_schedule(
                self.0,
                &raw const job,
                input.as_ptr().cast(),
                input.len(),
                &raw mut id,
                ptr::null_mut(),
            )
        };
        assert_eq!(status, Status::Success);
        // SAFETY: it is a string, which is freed once.
        unsafe {
            let response = ScheduleResponse::scheduled(
                CStr::from_ptr(id).to_str().expect("text"),
                CompactionServiceJobStatus::Success,
            );
            rm_free(id.cast::<c_void>());
            response.expect("an id has no zeros")
        }
    }

    fn wait(&self, id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        let mut answer = CResult {
            struct_size: size_of::<CResult>(),
            message: ptr::null_mut(),
            message_size: 0,
        };
        // SAFETY: all arguments live during the call, and the message is freed once.
        unsafe {
            let status = rm_service_wait(self.0, id.as_ptr(), &raw mut answer, ptr::null_mut());
            assert_eq!(status, Status::Success);
            let message = std::slice::from_raw_parts(answer.message.cast(), answer.message_size);
            result.extend_from_slice(message);
            rm_free(answer.message.cast());
        }
        CompactionServiceJobStatus::Success
    }

    fn on_installation(&self, id: &CStr, status: Option<CompactionServiceJobStatus>) {
        let status = status.map_or(Status::UseLocal as i32, |status| status as i32);
        // SAFETY: the id lives during the call.
        unsafe { rm_service_on_installation(self.0, id.as_ptr(), status, ptr::null_mut()) };
    }
}

impl Drop for ThroughC {
    fn drop(&mut self) {
        // SAFETY: any handle may be closed.
        unsafe { rm_service_close(self.0, ptr::null_mut()) };
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(256 << 20);
    options
}

/// Each key is in one of the files, whose ranges overlap.
fn make(path: &Path) -> Result<(), Error> {
    let db = DB::open(&options(), path)?;
    for file in 0..FILES {
        for key in (file..KEYS).step_by(FILES as usize) {
            let noise = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            db.put(format!("{key:016}"), noise.repeat(VALUE_BYTES / 8))?;
        }
        db.flush()?;
    }
    Ok(())
}

/// Compacts a copy and returns wall and CPU time.
fn compact(from: &Path, copy: &Path, options: &Options) -> Result<[Duration; 2], Error> {
    {
        let source = DB::open_for_read_only(&self::options(), from, false)?;
        Checkpoint::new(&source)?.create_checkpoint(copy)?;
    }
    let db = DB::open(options, copy)?;
    let clocks = || {
        [ClockId::Monotonic, ClockId::ProcessCPUTime]
            .map(|clock| Duration::try_from(clock_gettime(clock)).expect("clocks do not go back"))
    };
    let before = clocks();
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let after = clocks();
    drop(db);
    std::fs::remove_dir_all(copy)?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// The median and the minimum, in seconds.
fn summary(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    let half = times.len() / 2;
    let median = (times[half] + times[(times.len() - 1) / 2]) / 2;
    [median, times[0]].map(|time| time.as_secs_f64())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).filter(|name| name != "--bench");
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".to_owned()));
    let rounds: usize = arguments.next().map_or(Ok(DEFAULT_ROUNDS), |n| n.parse())?;
    let dir = tempfile::tempdir_in(dir)?;
    let (from, copy) = (dir.path().join("from"), dir.path().join("copy"));
    make(&from)?;

    let rust = rockmill::Service::builder().min_job_bytes(0).threads(2);
    let rust = rust.build()?;
    let mut through_rust = options();
    through_rust.set_compaction_service(rust.clone());
    // SAFETY: the settings are a string.
    let handle = unsafe { rm_service_open(SETTINGS.as_ptr(), ptr::null_mut()) };
    let mut through_c = options();
    through_c.set_compaction_service(ThroughC(handle));

    // The first time of each is not counted.
    let mut times = [[vec![], vec![]], [vec![], vec![]]];
    for round in 0..=rounds {
        for turn in 0..2 {
            let door = (round + turn) % 2;
            let [wall, cpu] = compact(&from, &copy, [&through_rust, &through_c][door])?;
            if round > 0 {
                println!("{} wall {wall:.3?} CPU {cpu:.3?}", ["Rust", "C   "][door]);
                times[door][0].push(wall);
                times[door][1].push(cpu);
            }
        }
    }
    // SAFETY: the text is a string, and freed once.
    let of_c = unsafe {
        let json = rm_service_stats_json(handle, ptr::null_mut());
        let text = CStr::from_ptr(json).to_string_lossy().into_owned();
        rm_free(json.cast());
        text
    };
    let jobs = rounds as u64 + 1;
    assert_eq!(rust.stats().jobs_done, jobs, "{}", rust.stats());
    assert!(of_c.contains(&format!("\"jobs_done\":{jobs},")), "{of_c}");
    let [rust, c] = times.map(|of| of.map(|mut times| summary(&mut times)));
    for (clock, name) in ["wall", "CPU"].into_iter().enumerate() {
        for (which, kind) in ["median", "least"].into_iter().enumerate() {
            let (rust, c) = (rust[clock][which], c[clock][which]);
            let percent = (c / rust - 1.0) * 100.0;
            println!(
                "{name} time, {kind} of {rounds}: Rust {rust:.4} s, C {c:.4} s, {percent:+.2} %"
            );
        }
    }
    Ok(())
}
