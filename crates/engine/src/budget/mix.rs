//! How many slices to have in flight on each device, where the host's processors feed them all.
//!
//! A job ends first if the processors' time goes to whoever makes most of it: first to the device that takes least
//! of it for a slice, up to its full house, and what is spare beside that to the next. So one that is fed by few
//! processors leaves the others to the CPU, and one that needs more than half of them has the job to itself. So has one
//! that waits for the host's memory and files more than for itself: what slices on the CPU take of these it loses.

use super::lanes::{Candidate, HOST};

/// The CPU joins devices that leave it this share of the processors at least. Of the others, most share a core, and all
/// share memory, with those that feed the devices: where 10 to 12 of 16 fed a GPU, slices on the rest made its
/// own so much slower that the job took 0.54 s rather than 0.47 (docs/design/gpu.md).
pub const LEAST_SPARE: f64 = 0.5;

/// Devices that wait for the host leave a job to the CPU alone if it ends so many times as soon. Less is not worth its
/// processor time, and with predictions that come so near to each other now these would be chosen and now that.
const CLEARLY: f64 = 1.25;

/// What else runs on devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// Processors that feed devices which are not asked for.
    pub busy: f64,
    /// Whether a slice runs somewhere that waits most for what the host gives it.
    pub host_bound: bool,
    /// Whether the CPU may not take all that is left.
    pub cpu_is_bounded: bool,
}

/// Slices in flight at most on each of `devices`, which have room for `cores` each, such that all together keep no
/// more than `cores` processors busy, with those that are busy `beside`. The first to be served may always have one.
pub fn in_flight(devices: &[Candidate], cores: usize, beside: Beside) -> Vec<usize> {
    let waits = |device: &Candidate| device.device != HOST && device.host_bound;
    let host_bound = beside.host_bound || devices.iter().any(waits);
    let thrift = |at: &usize| (devices[*at].cpu_seconds, devices[*at].seconds);
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by(|a, b| {
        let ((cpu_a, a), (cpu_b, b)) = (thrift(a), thrift(b));
        cpu_a.total_cmp(&cpu_b).then(a.total_cmp(&b))
    });
    let spare = cores as f64 - beside.busy;
    let most = served(devices, &order, cores, spare, !host_bound);
    let host = order.iter().find(|&&at| devices[at].device == HOST);
    let may_be_alone = host_bound && !beside.cpu_is_bounded;
    let Some(&host) = host.filter(|&&at| may_be_alone && most[at] == 0) else {
        return most;
    };
    // What all wait for is given to these, or to the CPU where that makes clearly more of it.
    let rate = |most: &[usize]| -> f64 {
        let each = devices.iter().zip(most);
        let rates = each.map(|(device, &n)| n as f64 / device.beside(n.saturating_sub(1), cores));
        rates.sum()
    };
    let alone = served(devices, &[host], cores, spare, false);
    match rate(&alone) > CLEARLY * rate(&most) {
        true => alone,
        false => most,
    }
}

/// Slices in flight at most on the devices at these places, the first of which is served first, as `spare` of `cores`
/// processors suffice. The CPU `joins` others if they leave it enough.
fn served(
    devices: &[Candidate],
    order: &[usize],
    cores: usize,
    mut spare: f64,
    joins: bool,
) -> Vec<usize> {
    let mut most = vec![0; devices.len()];
    for (nth, &at) in order.iter().enumerate() {
        let device = &devices[at];
        let joins = joins && spare >= LEAST_SPARE * cores as f64;
        if device.device == HOST && nth > 0 && !joins {
            continue;
        }
        let fits = |slices: &usize| processors(device, *slices, cores) <= spare;
        let slices = (1..=cores).rev().find(fits).unwrap_or(0);
        most[at] = slices.max(usize::from(nth == 0));
        spare -= processors(device, most[at], cores);
    }
    most
}

/// Processors that so many slices in flight keep busy, of so many.
pub fn processors(device: &Candidate, slices: usize, cores: usize) -> f64 {
    let Some(others) = slices.checked_sub(1) else {
        return 0.0;
    };
    let each = device.cpu_seconds / device.beside(others, cores).max(f64::MIN_POSITIVE);
    // More than there are, only a guess can say.
    (slices as f64 * each).min(cores as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(device: usize, alone: f64, seconds: f64, cpu_seconds: f64) -> Candidate {
        Candidate {
            device,
            alone,
            seconds,
            cpu_seconds,
            host_bound: false,
        }
    }

    /// A device of which all slices are alike, however many run.
    fn even(device: usize, seconds: f64, cpu_seconds: f64) -> Candidate {
        candidate(device, seconds, seconds, cpu_seconds)
    }

    #[test]
    fn who_needs_least_of_the_processors_is_served_first() {
        let cpu = even(0, 0.135, 0.135);
        // Measured: 9.4 of 16 processors feed it.
        let gpu = |device| even(device, 0.107, 0.0626);
        let in_flight = |devices: &[Candidate], busy| {
            let beside = Beside {
                busy,
                ..Beside::default()
            };
            in_flight(devices, 16, beside)
        };
        assert_eq!(in_flight(&[cpu], 0.0), [16]);
        assert_eq!(in_flight(&[cpu, gpu(1)], 0.0), [0, 16], "it is fed by half");
        let thrifty = even(1, 0.107, 0.03);
        assert_eq!(in_flight(&[cpu, thrifty], 0.0), [11, 16]);
        assert_eq!(in_flight(&[gpu(1), gpu(2), cpu], 0.0), [16, 11, 0]);
        assert_eq!(in_flight(&[cpu, thrifty], 5.0), [0, 16]);
        assert_eq!(in_flight(&[cpu], 20.0), [1], "somebody works");
        let near_data = even(1, 2.0, 0.01);
        assert_eq!(in_flight(&[cpu, near_data], 0.0), [15, 16]);
        let greedy = even(1, 0.1, 0.2);
        assert_eq!(in_flight(&[cpu, greedy], 0.0), [16, 0]);
    }

    #[test]
    fn the_cpu_takes_nothing_of_what_a_device_waits_for() {
        // All that the CPU waits for is the host's.
        let cpu = Candidate {
            host_bound: true,
            ..even(0, 0.135, 0.135)
        };
        let thrifty = even(1, 0.107, 0.03);
        let waits = Candidate {
            host_bound: true,
            ..thrifty
        };
        let alone = Beside::default();
        assert_eq!(in_flight(&[cpu, thrifty], 16, alone), [11, 16]);
        assert_eq!(in_flight(&[cpu, waits], 16, alone), [0, 16]);
        // Another job's slices wait there.
        let beside = Beside {
            host_bound: true,
            ..alone
        };
        assert_eq!(in_flight(&[cpu, thrifty], 16, beside), [0, 16]);
        assert_eq!(in_flight(&[cpu], 16, beside), [16], "nobody else can");
        // Measured on 64 processors: 0.94 s for 200 slices on the CPU, 1.46 s on a GPU.
        let waits = |device, seconds| Candidate {
            host_bound: true,
            ..even(device, seconds, 0.1)
        };
        let cpu = even(0, 0.3, 0.3);
        assert_eq!(in_flight(&[cpu, waits(1, 0.467)], 64, alone), [64, 0]);
        let bounded = Beside {
            cpu_is_bounded: true,
            ..alone
        };
        assert_eq!(in_flight(&[cpu, waits(1, 0.467)], 64, bounded), [0, 64]);
        for as_good in [0.28, 0.33] {
            assert_eq!(in_flight(&[cpu, waits(1, as_good)], 64, alone), [0, 64]);
        }
        let two = [cpu, waits(1, 0.467), waits(2, 0.467)];
        assert_eq!(in_flight(&two, 64, alone), [0, 64, 64], "both are quicker");
    }

    fn devices() -> impl Strategy<Value = Vec<Candidate>> {
        let device = (0.01_f64..1.0, 1.0_f64..8.0, 0.01_f64..1.5);
        prop::collection::vec(device, 1..5).prop_map(|devices| {
            let numbered = devices.into_iter().enumerate();
            let device = |(device, (alone, crowd, feed))| {
                let seconds = alone * crowd;
                candidate(device, alone, seconds, seconds * feed)
            };
            numbered.map(device).collect()
        })
    }

    proptest! {
        #[test]
        fn no_more_processors_are_busy_than_there_are(
            devices in devices(), cores in 1_usize..130, busy in 0.0_f64..8.0
        ) {
            let beside = Beside { busy, ..Beside::default() };
            let most = in_flight(&devices, cores, beside);
            let all = || devices.iter().zip(&most);
            let used: f64 = all().map(|(d, &n)| processors(d, n, cores)).sum();
            let in_all = most.iter().sum::<usize>();
            prop_assert!(in_all >= 1 && most.iter().all(|&n| n <= cores));
            prop_assert!(in_all == 1 || used + busy <= cores as f64 + 1e-9, "{used} of {cores}");
            for (d, &n) in all() {
                // One more would not fit beside those that need less or as much for a slice.
                let before = all().filter(|(other, _)| other.cpu_seconds <= d.cpu_seconds);
                let used: f64 = before.map(|(d, &n)| processors(d, n, cores)).sum();
                let more = processors(d, n + 1, cores) - processors(d, n, cores);
                let joins = d.device != HOST || used + busy <= (1.0 - LEAST_SPARE) * cores as f64;
                prop_assert!(n == cores || !joins || used + busy + more > cores as f64 - 1e-9);
            }
        }
    }
}
