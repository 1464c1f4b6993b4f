//! What must hold of any rates.

mod keeping;

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use rockmill_core::{CancelToken, ErrorKind};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaSettings, Target};
use rockmill_format::compression::CompressionType;

use super::*;
use crate::clock::SystemClock;

/// Some rates: a nanosecond here and there, and a GPU that is quick and slow to start.
pub(crate) fn rates() -> Rates {
    let cost = |scale: f64, slice: f64| -> Cost {
        let each = |(i, &term): (usize, &Term)| (term, scale * 1e-9 * (1.0 + i as f64 % 5.0));
        let all = Term::ALL.iter().enumerate().map(each);
        all.chain([(Term::Slice, slice), (Term::Run, 1e-6)])
            .collect()
    };
    let gpu = GpuRates {
        slice: cost(0.1, 3e-3),
        kernels: cost(0.02, 1e-4),
        host: cost(0.05, 1e-3),
        to_device: 5e10,
        from_device: 5e10,
        overlap: Overlap {
            host: 0.9,
            device: 0.6,
        },
        crowded: 1.2,
        correction: 1.0,
        host_correction: 1.0,
    };
    Rates {
        cpu: CpuRates {
            slice: cost(1.0, 1e-4),
            cores: 8,
            crowded: 1.5,
            correction: 1.0,
        },
        storage: StorageRates {
            read: 2e10,
            write: 1e10,
        },
        gpus: BTreeMap::from([("cuda:0".to_owned(), gpu)]),
    }
}

fn idle() -> Idle {
    Idle::new(SystemClock::shared())
}

fn host() -> Host {
    Host {
        processor: "some processor".to_owned(),
        cores: 8,
        driver: "580.1".to_owned(),
    }
}

fn gpus(named: &[(&str, &str)]) -> GpuModels {
    let named = named.iter().copied();
    named
        .map(|(name, model)| (name.to_owned(), model.to_owned()))
        .collect()
}

/// The GPU of [`rates`].
fn gpu() -> GpuModels {
    gpus(&[("cuda:0", "some GPU")])
}

/// Keeps some rates of this machine, for the kernels on the host as well.
pub(crate) fn keep_rates_of_kernels(path: &Path) {
    let mut rates = rates();
    let gpu = rates.gpus["cuda:0"].clone();
    rates.gpus.insert("cuda-on-host".to_owned(), gpu);
    rates.gpus.remove("cuda:0");
    let kernels = gpus(&[("cuda-on-host", &kernels_name())]);
    kept::save(path, &Host::here(), &kernels, &rates).expect("there is room");
}

/// What the kernels on the host call themselves.
fn kernels_name() -> String {
    let host = CudaBackend::new(Target::Host, CudaSettings::default()).expect("the host");
    host.device().about().name.clone()
}

fn shapes() -> impl Strategy<Value = SliceShape> {
    let compression = prop::sample::select(CompressionType::ALL.to_vec());
    (
        1_u64..1_000_000,
        4_u64..64,
        0_u64..4096,
        1_u32..40,
        1_u64..8,
        compression,
    )
        .prop_map(|(entries, key, value, runs, versions, compression)| {
            let bytes_in = entries * (key + 8 + value);
            SliceShape {
                bytes_in,
                entries,
                key_bytes: entries * (key + 8),
                value_bytes: entries * value,
                runs,
                bytes_out: bytes_in / versions,
                compression,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn more_of_anything_never_takes_less_time(shape in shapes(), more in 1.0_f64..10.0, at_once in 1_u32..32) {
        let entries = (shape.entries as f64 * more) as u64;
        let value_bytes = (shape.value_bytes as f64 * more) as u64;
        let bytes_out = (shape.bytes_out as f64 * more) as u64;
        let grown = [
            shape.scaled(more),
            SliceShape { bytes_out, ..shape },
            SliceShape { value_bytes, ..shape },
            SliceShape { runs: shape.runs + 1, ..shape },
            // The same keys, each in an entry of its own.
            SliceShape { entries, key_bytes: (shape.key_bytes as f64 * more) as u64, ..shape },
        ];
        let rates = rates();
        for device in [CPU, "cuda:0"] {
            let seconds = |shape: &SliceShape, at_once| {
                rates.predict(device, shape, at_once).map(|p| p.seconds).expect("it has rates")
            };
            let of_the_host = |shape: &SliceShape| {
                rates.predict(device, shape, at_once).map(|p| p.cpu_seconds).expect("it has rates")
            };
            let before = seconds(&shape, at_once);
            prop_assert!(before > 0.0);
            for larger in &grown {
                prop_assert!(seconds(larger, at_once) >= before * (1.0 - 1e-9), "{larger:?} on {device}");
                prop_assert!(of_the_host(larger) >= of_the_host(&shape) * (1.0 - 1e-9), "{larger:?} on {device}");
            }
            prop_assert!(seconds(&shape, at_once + 1) >= before, "on {device}");
        }
    }

    #[test]
    fn a_fit_finds_what_slices_were_timed_with(seed in proptest::collection::vec(0.1_f64..1.0, Term::ALL.len()),
                                               timed in proptest::collection::vec(shapes(), 200),
                                               others in proptest::collection::vec(shapes(), 20)) {
        let cost: Cost = Term::ALL.iter().copied().zip(seed).map(|(term, rate)| {
            let scale = if term == Term::Slice { 1e-4 } else { 1e-8 };
            (term, rate * scale)
        }).collect();
        let samples: Vec<_> = timed.iter().map(|shape| (*shape, cost.seconds(shape))).collect();
        let found = Cost::fit(&Term::ALL, &samples);
        prop_assert!(found.is_sound());
        for shape in &others {
            let error = found.seconds(shape) / cost.seconds(shape) - 1.0;
            prop_assert!(error.abs() < 0.05, "{error} of {shape:?}");
        }
    }
}

pub(crate) fn large() -> SliceShape {
    SliceShape {
        bytes_in: 128 << 20,
        entries: 500_000,
        key_bytes: 12_000_000,
        value_bytes: 120_000_000,
        runs: 8,
        bytes_out: 32 << 20,
        compression: CompressionType::None,
    }
}

#[test]
fn slices_of_a_gpu_overlap_until_the_slowest_part_is_always_busy() {
    let mut rates = rates();
    // Of the slice's parts files read and kernels take longest, in turn.
    for (read, bottleneck) in [
        (5e9, Part::Read),
        (1.1e10, Part::Read),
        (2e10, Part::Kernels),
    ] {
        rates.storage.read = read;
        let predict = |at_once| {
            let predicted = rates.predict("cuda:0", &large(), at_once);
            predicted.expect("it has rates")
        };
        let part = |of| {
            let parts = predict(1).parts;
            let found = parts.into_iter().find(|(part, _)| *part == of);
            found.expect("it has such a part").1
        };
        let (alone, five) = (predict(1), predict(5));
        let added = (0.9 * part(Part::Read)).max(0.6 * part(Part::Kernels));
        assert!((five.seconds - alone.seconds - 4.0 * added).abs() < 1e-12);
        assert!(
            added < alone.seconds && five.bottleneck == bottleneck,
            "{five:?}"
        );
    }
    let host = |at_once| {
        let predicted = rates.predict("cuda:0", &large(), at_once);
        predicted.expect("it has rates").cpu_seconds
    };
    assert!((host(8) / host(1) - rates.gpus["cuda:0"].crowded).abs() < 1e-9);
    assert!(host(4) < host(8) && host(8) == host(16));
    assert!(rates.predict("cuda:1", &large(), 1).is_none());
}

#[test]
fn a_gpu_wins_from_some_size_on() {
    let rates = rates();
    let most = 1 << 30;
    let least = rates
        .wins_from("cuda:0", &large(), 1, most)
        .expect("it is quicker");
    let seconds = |device, bytes: u64| {
        let slice = large().scaled(bytes as f64 / large().bytes_in as f64);
        rates
            .predict(device, &slice, 1)
            .expect("it has rates")
            .seconds
    };
    assert!(seconds("cuda:0", 2 * least) < seconds(CPU, 2 * least));
    assert!(seconds("cuda:0", least / 2) > seconds(CPU, least / 2));
    assert_eq!(rates.wins_from("cuda:0", &large(), 1, 8192), None);
    assert_eq!(rates.wins_from("cuda:1", &large(), 1, most), None);
}

#[test]
fn slices_of_the_cpu_take_its_processors_as_long_as_they_run_and_no_longer() {
    let rates = rates();
    let predict = |at_once| rates.predict(CPU, &large(), at_once).expect("it has rates");
    for at_once in [1, 8] {
        let predicted = predict(at_once);
        assert!((predicted.cpu_seconds / predicted.seconds - 1.0).abs() < 1e-9);
    }
    // They take turns.
    assert!((2.0 * predict(16).cpu_seconds / predict(16).seconds - 1.0).abs() < 1e-9);
}

#[test]
fn a_device_waits_for_the_host_where_that_gives_little_more_than_it_takes() {
    let is_hosts = |change: fn(&mut Rates)| {
        let mut rates = rates();
        change(&mut rates);
        let predicted = rates.predict("cuda:0", &large(), 8);
        predicted.expect("it has rates").is_host_bound()
    };
    assert!(is_hosts(|rates| rates.storage.read = 1e9));
    assert!(is_hosts(|rates| rates.storage.write = 1e9));
    fn gpu(rates: &mut Rates) -> &mut GpuRates {
        rates.gpus.get_mut("cuda:0").expect("it has rates")
    }
    assert!(!is_hosts(|rates| gpu(rates).to_device = 1e9));
    assert!(!is_hosts(|rates| gpu(rates).from_device = 1e9));
    // It does where the host gives a little more, too.
    assert!(is_hosts(|rates| {
        rates.storage.read = 1e9;
        gpu(rates).to_device = 0.6e9;
    }));
    assert!(!is_hosts(|rates| {
        rates.storage.read = 1e9;
        gpu(rates).to_device = 0.4e9;
    }));
}

fn took(seconds: f64) -> SliceTime {
    SliceTime {
        seconds,
        cpu_seconds: seconds,
    }
}

#[test]
fn jobs_correct_a_device_step_by_step_and_never_far() {
    let mut rates = rates();
    let predict = |rates: &Rates| {
        let predicted = rates.predict(CPU, &large(), 1);
        predicted.expect("it has rates").seconds
    };
    let (first, gpus) = (predict(&rates), rates.gpus.clone());
    rates.observe(CPU, &large(), 1, took(1000.0 * first));
    assert!(predict(&rates) > first && predict(&rates) <= 1.1 * first * (1.0 + 1e-9));
    for _ in 0..1000 {
        rates.observe(CPU, &large(), 1, took(2.0 * first));
    }
    assert!((predict(&rates) / first - 2.0).abs() < 1e-3);
    for _ in 0..1000 {
        rates.observe(CPU, &large(), 1, took(1e6));
    }
    assert!(rates.are_sound() && predict(&rates) <= 4.0 * first * (1.0 + 1e-9));
    let corrected = rates.clone();
    for nonsense in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        rates.observe(CPU, &large(), 1, took(nonsense));
        rates.observe("cuda:0", &large(), 1, took(nonsense));
    }
    rates.observe("cuda:7", &large(), 1, took(1.0));
    assert_eq!((rates.clone(), rates.gpus), (corrected, gpus));
}

#[test]
fn what_feeding_a_device_takes_is_corrected_by_itself() {
    let mut rates = rates();
    let predict = |rates: &Rates| rates.predict("cuda:0", &large(), 4).expect("it has rates");
    let first = predict(&rates);
    for _ in 0..1000 {
        let took = SliceTime {
            seconds: first.seconds,
            cpu_seconds: 3.0 * first.cpu_seconds,
        };
        rates.observe("cuda:0", &large(), 4, took);
    }
    let now = predict(&rates);
    assert!((now.seconds / first.seconds - 1.0).abs() < 1e-9);
    assert!((now.cpu_seconds / first.cpu_seconds - 3.0).abs() < 1e-3);
}

#[test]
fn slices_to_measure_are_what_was_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let workload = Workload {
        key_bytes: 12,
        value_bytes: 88,
        runs: 5,
        versions: 3,
        compression: CompressionType::None,
        raw_bytes: 60_000,
    };
    let made =
        Made::new(&workload, dir.path(), "input", &CancelToken::new()).expect("there is room");
    let shape = *made.shape();
    assert_eq!((shape.entries, shape.runs), (600, 5));
    assert_eq!((shape.key_bytes, shape.value_bytes), (600 * 20, 600 * 88));
    assert!(shape.bytes_in > shape.value_bytes && shape.bytes_out == shape.bytes_in / 3);
    let measured = made
        .run(&CpuBackend, dir.path(), "output", &CancelToken::new())
        .expect("it runs");
    assert!(measured.seconds > 0.0);
    let all = made
        .run_at_once(&CpuBackend, dir.path(), 2, &CancelToken::new())
        .expect("they run");
    assert!(all.len() == 2 && mean(&all, |one| one.seconds) > 0.0);
    drop(made);
    assert!(!dir.path().join("input").exists() && !dir.path().join("output").exists());
}

#[test]
fn the_slowest_machine_that_is_sound_ends_the_largest_slice_some_day() {
    let mut rates = rates();
    let slowest: Cost = { Term::ALL.into_iter() }
        .map(|term| (term, term.most_seconds()))
        .collect();
    let shape = SliceShape {
        bytes_in: 1 << 60,
        entries: 1 << 60,
        key_bytes: 1 << 60,
        value_bytes: 1 << 60,
        runs: u32::MAX,
        bytes_out: 1 << 60,
        compression: CompressionType::Zstd,
    };
    let gpu = rates.gpus.get_mut("cuda:0").expect("it has rates");
    for cost in [
        &mut gpu.slice,
        &mut gpu.kernels,
        &mut gpu.host,
        &mut rates.cpu.slice,
    ] {
        *cost = slowest.clone();
    }
    gpu.crowded = *rates::CROWDED.end();
    gpu.overlap = Overlap {
        host: *rates::OVERLAP.end(),
        device: *rates::OVERLAP.end(),
    };
    assert!(rates.are_sound());
    for device in [CPU, "cuda:0"] {
        let predicted = rates.predict(device, &shape, u32::MAX);
        let predicted = predicted.expect("it has rates");
        assert!(predicted.seconds.is_finite() && predicted.cpu_seconds.is_finite());
    }
    let tiny = |rate| Cost::from_iter([(Term::Entry, rate)]);
    assert!(tiny(1e-300).is_nothing() && !tiny(1e-9).is_nothing());
}
