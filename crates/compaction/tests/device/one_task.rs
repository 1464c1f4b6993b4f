//! Measures one task in memory on the CPU backend, by the kernels on the host, and on the GPU if `ROCKMILL_TEST_DEVICE`
//! names one. Prints seconds and GB/s of input and output. It is here because a separate program would contain the
//! kernels once more.

use std::time::Instant;

use rockmill_core::{Backend, CancelToken, DeeperLevels, InputTable, KeyRange, Plan, ReadTask};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};
use rockmill_format::filter::FilterOptions;

use super::target;
use crate::common::{self, Entry, MemSink};

const RUNS: u64 = 8;
const VERSIONS: u64 = 4;
const REPETITIONS: usize = 5;

#[test]
#[ignore = "it measures; see docs/internals/measuring.md"]
fn one_task() {
    println!(" workload       backend        best s   GB/s");
    for (key_bytes, value_bytes, entries) in [(16, 256, 400_000), (8, 32, 1_600_000)] {
        let inputs = inputs(key_bytes, value_bytes, entries);
        let workload = format!("{key_bytes}x{value_bytes}");
        measure(&workload, &CpuBackend, &inputs);
        let open = |target| CudaBackend::new(target, CudaSettings::default());
        measure(&workload, &open(Target::Host).expect("the host"), &inputs);
        if let gpu @ Target::Cuda(_) = target() {
            measure(&workload, &open(gpu).expect("the GPU"), &inputs);
        }
    }
}

fn plan() -> Plan {
    let mut plan = common::plan();
    plan.rules.bottommost = true;
    plan.rules.deeper = DeeperLevels::Nothing;
    plan.output.table.filter = Some(FilterOptions {
        optimize_filters_for_memory: true,
        ..FilterOptions::whole_keys(10_000)
    });
    plan
}

fn inputs(key_bytes: usize, value_bytes: usize, entries: u64) -> Vec<InputTable> {
    /// Spreads keys over the key space.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut runs = vec![Vec::new(); RUNS as usize];
    for i in 0..entries {
        let word = (i % (entries / VERSIONS)).wrapping_mul(ODD);
        let mut key = word.to_be_bytes().to_vec();
        key.resize(key_bytes, b'k');
        let value = common::noise(i, value_bytes);
        runs[(i * RUNS / entries) as usize].push(Entry::new(&key, i + 1, common::PUT, &value));
    }
    for run in &mut runs {
        run.sort_by_key(Entry::order);
    }
    common::tables(&plan(), &runs)
}

fn measure<B: Backend>(workload: &str, backend: &B, inputs: &[InputTable]) {
    let (plan, cancel) = (plan(), CancelToken::new());
    let range = KeyRange::default();
    let task = ReadTask {
        reading: plan.reading(inputs, &range, 1 << 20),
        ..common::task(inputs, &plan, &range, &cancel)
    };
    let mut best = f64::MAX;
    let mut bytes = 0;
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        let mut sink = MemSink::numbered_from(1);
        let report = common::make(backend, task, &plan.output, &mut sink).expect("files");
        best = best.min(started.elapsed().as_secs_f64());
        bytes = report.read.bytes + report.files().iter().map(|file| file.size).sum::<u64>();
    }
    let rate = bytes as f64 / 1e9 / best;
    let name = backend.name();
    println!(" {workload:<14} {name:<14} {best:>6.4} {rate:>6.2}");
}
