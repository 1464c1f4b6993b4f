//! Devices that share a job, and the host's processors, in virtual time.

use super::lanes::{Candidate, HOST};
use super::mix;
use super::state::{Answer, Entry, Place, State, Wish, Work};
use super::urgency::Urgency;

/// A slice that runs: where, and how much of it is left.
struct Running {
    place: Place,
    left: f64,
}

/// What a job came to.
#[derive(Debug)]
struct Done {
    seconds: f64,
    /// When each device ended its last slice.
    ended: Vec<f64>,
    /// The most processors that were wanted at once.
    wanted: f64,
}

/// Does a job of so many equal slices on devices that take what is expected of them as long as the processors, one a
/// slot, suffice; else all slow down alike.
fn run(devices: &[Candidate], cores: usize, slices: u64) -> Done {
    run_with(devices, devices, cores, slices)
}

/// The same on devices that really are as `devices` say.
fn run_with(devices: &[Candidate], expected: &[Candidate], cores: usize, slices: u64) -> Done {
    let mut state = State::new(cores, u64::MAX);
    let ticket = state.queue(
        Wish::Enter(Entry {
            database: 0,
            expected_bytes: 0,
        }),
        Urgency::Usual,
    );
    state.serve();
    let Some(Answer::Entered { job }) = state.take_answer(ticket) else {
        panic!("nobody else opens inputs");
    };
    state.set_slice_bytes(job, 1);
    state.queue(Wish::Admit(job), Urgency::Usual);
    let work = Work {
        slices,
        slice_bytes: 1,
        host_slices: slices,
    };
    state.set_work(job, work);
    state.set_candidates(job, expected);
    let wish = |state: &mut State| state.queue(Wish::Slice(job), Urgency::Usual);
    let mut waiting: Vec<_> = (0..devices.len() * cores)
        .map(|_| wish(&mut state))
        .collect();
    let mut running: Vec<Running> = Vec::new();
    let mut done = Done {
        seconds: 0.0,
        ended: vec![0.0; devices.len()],
        wanted: 0.0,
    };
    loop {
        state.serve();
        waiting.retain(|&ticket| match state.take_answer(ticket) {
            None => true,
            Some(Answer::Slice(place)) => {
                running.push(Running { place, left: 1.0 });
                false
            }
            Some(_) => false,
        });
        let count = |device| running.iter().filter(|r| r.place.device == device).count();
        let counts: Vec<_> = devices.iter().map(|d| count(d.device)).collect();
        let busy = devices.iter().zip(&counts);
        let wanted: f64 = busy.map(|(d, &n)| mix::processors(d, n, cores)).sum();
        done.wanted = done.wanted.max(wanted);
        let slower = (wanted / cores as f64).max(1.0);
        let seconds = |place: &Place| {
            let at = devices.iter().position(|d| d.device == place.device);
            let at = at.expect("it was asked for");
            devices[at].beside(counts[at] - 1, cores) * slower
        };
        let next = running.iter().map(|r| r.left * seconds(&r.place));
        let next = next.fold(f64::INFINITY, f64::min);
        if running.is_empty() {
            done.seconds = state.now;
            return done;
        }
        state.now += next;
        for slice in &mut running {
            slice.left -= next / seconds(&slice.place);
        }
        // As good as ended, but for rounding.
        let ended = running.extract_if(.., |slice| slice.left < 1e-9);
        for slice in ended.collect::<Vec<_>>() {
            let at = devices.iter().position(|d| d.device == slice.place.device);
            done.ended[at.expect("it was asked for")] = state.now;
            state.give_back(job, &slice.place, true);
            waiting.push(wish(&mut state));
        }
    }
}

/// Slices a second that these devices may do at most together with so many processors, the CPU where they leave it
/// enough of them.
fn bound(devices: &[Candidate], cores: usize) -> f64 {
    let mut thrifty = devices.to_vec();
    thrifty.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    let mut spare = cores as f64;
    let rate = |device: &Candidate| {
        if device.device == HOST && spare < mix::LEAST_SPARE * cores as f64 {
            return 0.0;
        }
        let full = cores as f64 / device.seconds;
        let fed = spare / device.cpu_seconds.max(f64::MIN_POSITIVE);
        let rate = full.min(fed).max(0.0);
        spare -= rate * device.cpu_seconds;
        rate
    };
    thrifty.iter().map(rate).sum()
}

fn even(device: usize, seconds: f64, cpu_seconds: f64) -> Candidate {
    Candidate {
        device,
        alone: seconds,
        seconds,
        cpu_seconds,
        host_bound: false,
    }
}

/// A device whose slices wait for each other: so much one by itself, so much more each other.
fn pipeline(device: usize, alone: f64, each: f64, cores: usize, cpu_seconds: f64) -> Candidate {
    Candidate {
        device,
        alone,
        seconds: alone + (cores - 1) as f64 * each,
        cpu_seconds,
        host_bound: false,
    }
}

/// Together they are as quick as the best alone, near to what the processors allow, and nobody waits for the last.
fn assert_together(devices: &[Candidate], cores: usize, slices: u64) {
    let together = run(devices, cores, slices);
    let alone = devices
        .iter()
        .map(|&one| run(&[one], cores, slices).seconds);
    let best = alone.fold(f64::INFINITY, f64::min);
    let shown = format!("{devices:#?}, {cores} cores, {slices} slices: {together:?}, alone {best}");
    assert!(together.seconds <= best * (1.0 + 1e-9), "{shown}");
    assert!(together.wanted <= cores as f64 + 1e-6, "{shown}");
    let least = |of: fn(&Candidate) -> f64| devices.iter().map(of).fold(f64::INFINITY, f64::min);
    let fill = least(|device| device.seconds);
    let bound = slices as f64 / bound(devices, cores);
    assert!(
        together.seconds <= bound / 0.9 + 2.0 * fill,
        "{shown}, bound {bound}"
    );
    // Whoever is quick could have taken what others end later.
    let quickest = devices.iter().position(|device| device.seconds <= fill);
    let quickest = quickest.expect("one is");
    let waits = together.seconds - together.ended[quickest];
    assert!(waits <= fill * (1.0 + 1e-9), "{shown}");
}

const COUNTS: [u64; 10] = [1, 2, 3, 7, 15, 20, 40, 70, 300, 2000];

#[test]
fn devices_that_cost_the_host_nothing_come_near_to_the_sum_of_each_alone() {
    for (seconds, slots) in [
        (&[4.0, 1.0][..], 1),
        (&[4.0, 1.0], 4),
        (&[1.0, 4.0], 2),
        (&[3.0, 1.0, 1.0], 2),
        (&[50.0, 1.0], 8),
    ] {
        let numbered = seconds.iter().enumerate();
        let devices: Vec<_> = numbered.map(|(device, &s)| even(device, s, 0.0)).collect();
        let sum: f64 = seconds.iter().map(|seconds| slots as f64 / seconds).sum();
        assert!((bound(&devices, slots) / sum - 1.0).abs() < 1e-9);
        for slices in COUNTS {
            assert_together(&devices, slots, slices);
        }
    }
}

/// 16 processors, slices of 128 MB: measured were 0.59 s of all processors for 70 of 16 B/256 B, 0.47 s on a GPU that
/// 9 of them feed; of 8 B/32 B 0.48 s and 0.15 s for 15.
const CORES: usize = 16;

fn large_values() -> [Candidate; 3] {
    [
        even(HOST, 0.135, 0.135),
        even(1, 0.107, 0.0626),
        even(2, 0.107, 0.0626),
    ]
}

fn small_values() -> [Candidate; 3] {
    let gpu = |device| pipeline(device, 0.02, 0.0093, CORES, 0.065);
    [even(HOST, 0.512, 0.512), gpu(1), gpu(2)]
}

#[test]
fn devices_that_share_the_hosts_processors_are_never_slower_than_the_best_alone() {
    for slices in COUNTS {
        for [cpu, gpu, other] in [large_values(), small_values()] {
            assert_together(&[cpu, gpu], CORES, slices);
            assert_together(&[gpu, other], CORES, slices);
            assert_together(&[cpu, gpu, other], CORES, slices);
        }
    }
}

#[test]
fn a_long_job_reaches_nine_tenths_of_what_the_processors_allow() {
    const SLICES: u64 = 2000;
    for [cpu, gpu, other] in [large_values(), small_values()] {
        for devices in [&[cpu, gpu][..], &[gpu, other], &[cpu, gpu, other]] {
            let done = run(devices, CORES, SLICES);
            let bound = SLICES as f64 / bound(devices, CORES);
            assert!(bound >= 0.9 * done.seconds, "{done:?}, {bound}");
        }
    }
}

#[test]
fn the_cpu_has_what_a_device_leaves_it() {
    let slices_of = |devices: &[Candidate]| {
        let both = run(devices, CORES, 300);
        both.ended
            .iter()
            .map(|ended| *ended > 0.0)
            .collect::<Vec<_>>()
    };
    let cpu = even(HOST, 0.135, 0.135);
    // All processors feed the one, hardly any the other.
    assert_eq!(slices_of(&[cpu, even(1, 0.02, 0.02)]), [false, true]);
    assert_eq!(slices_of(&[cpu, even(1, 2.0, 0.01)]), [true, true]);
    assert_eq!(
        slices_of(&[cpu, even(1, 0.3, 0.4)]),
        [true, false],
        "a thread does it for less"
    );
}

#[test]
fn what_is_expected_may_be_wrong_by_half() {
    for [cpu, gpu, _] in [large_values(), small_values()] {
        let wrong = |c: Candidate, times: f64| Candidate {
            alone: c.alone * times,
            seconds: c.seconds * times,
            ..c
        };
        for (times, others) in [(0.67, 1.5), (1.5, 0.67)] {
            let expected = [wrong(cpu, times), wrong(gpu, others)];
            for slices in COUNTS {
                let together = run_with(&[cpu, gpu], &expected, CORES, slices).seconds;
                let best = run(&[gpu], CORES, slices).seconds;
                // A slice that others would have ended before.
                assert!(
                    together <= best + cpu.seconds,
                    "{slices}: {together}, {best}"
                );
            }
        }
    }
}
