//! Looks up keys in a view of a RocksDB database in batches, and from a kernel that also puts. The arguments are the
//! folder of a new database, and the folder with the headers (PREFIX/include after `make install`).

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use rockmill_live::LiveDatabase;
use rockmill_view::{
    CallerStream, KvRecord, RingSettings, Rows, SliceKeys, SliceRows, Target, View,
};
use rust_rocksdb::{DB, Options};

const KEYS: u32 = 100_000;
const KEY_BYTES: usize = 16;
const ROW_BYTES: usize = 8;

/// Doubles the number behind each key, and puts it.
const KERNEL: &str = r#"
#include <rockmill/gpukv.cuh>
extern "C" __global__ void double_all(rockmill::kv kv, const char* keys, unsigned n, unsigned* written) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const rockmill::thread alone;
  unsigned long long number;
  const auto got = kv.get(alone, keys + 16 * i, 16, &number, sizeof number);
  if (got.status != rockmill::status::found) return;
  number *= 2;
  const auto ticket = kv.put(alone, keys + 16 * i, 16, &number, sizeof number);
  if (kv.wait(alone, ticket).status == rockmill::status::written) atomicAdd(written, 1u);
}
"#;

/// The kernel's parameter for cudarc.
struct Kv(#[allow(dead_code, reason = "the kernel reads it")] KvRecord);

// SAFETY: a rockmill::kv is this record.
unsafe impl DeviceRepr for Kv {}

fn key(number: u32) -> [u8; KEY_BYTES] {
    let text = format!("number/{number:09}");
    text.as_bytes().try_into().expect("a number of nine digits")
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, include] = &arguments[..] else {
        return Err("usage: cudarc FOLDER INCLUDE".into());
    };
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = Arc::new(DB::open(&options, folder)?);
    for number in 0..KEYS {
        db.put(key(number), u64::from(number).to_le_bytes())?;
    }

    let database = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    let view = View::builder(database, "default")
        .device(Target::Cuda(0))
        .ring(RingSettings::default())
        .open()?;

    let stream = CudaContext::new(0)?.new_stream()?;
    let keys: Vec<u8> = (0..KEYS).flat_map(key).collect();
    let keys = stream.clone_htod(&keys)?;
    let mut rows = stream.alloc_zeros::<u64>(KEYS as usize)?;
    let mut statuses = stream.alloc_zeros::<u8>(KEYS as usize)?;
    view.lookup_slices(
        SliceKeys::fixed(&keys, KEY_BYTES, &stream)?,
        SliceRows::new(&mut rows, ROW_BYTES, &mut statuses, &stream)?,
    )?;
    let sum: u64 = stream.clone_dtoh(&rows)?.iter().sum();
    let found = stream.clone_dtoh(&statuses)?;
    let found = found
        .iter()
        .filter(|&&status| status == Rows::FOUND)
        .count();
    println!("{found} keys were found, and their numbers add up to {sum}");

    let options = CompileOptions {
        include_paths: vec![include.clone()],
        arch: Some("compute_80"),
        options: vec!["--std=c++17".to_owned()],
        ..CompileOptions::default()
    };
    let module = stream
        .context()
        .load_module(compile_ptx_with_opts(KERNEL, options)?)?;
    let double_all = module.load_function("double_all")?;
    let mut written = stream.alloc_zeros::<u32>(1)?;
    {
        // SAFETY: the stream is one of the view's device.
        let hold = view.hold(unsafe { CallerStream::new(stream.cu_stream().cast()) })?;
        let kv = Kv(hold.kv());
        let mut launch = stream.launch_builder(&double_all);
        launch.arg(&kv).arg(&keys).arg(&KEYS).arg(&mut written);
        // SAFETY: these are the kernel's parameters.
        unsafe { launch.launch(LaunchConfig::for_num_elems(KEYS)) }?;
    }
    let written = stream.clone_dtoh(&written)?;
    let mut doubled = 0;
    for number in 0..KEYS {
        let value = db.get(key(number))?.unwrap_or_default();
        doubled += u32::from(value == (2 * u64::from(number)).to_le_bytes());
    }
    println!("{written:?} puts were written, and RocksDB has {doubled} doubled numbers");
    if doubled == KEYS {
        Ok(())
    } else {
        Err("some are missing".into())
    }
}
