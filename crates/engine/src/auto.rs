//! Whether a job is worth a device that nobody named: what [`Device::Auto`](crate::Device::Auto) leaves to the CPU.

use crate::model::CPU;
use crate::predict::Predict;
use crate::run::Shapes;

/// Before anything is known of a GPU: slices that take the CPU less time are not worth it, so much and so much more for
/// each in flight. Copies, launches and waits take a GPU as long whatever is in a slice, and slices take turns there. An
/// H200 wins from slices on that take a thread 2 to 6 ms by themselves, and 20 to 75 ms with 16 in flight
/// (bench/results/model/h200.json): the more, the larger values are, which the CPU is quick with.
const FIRST_CPU_SECONDS: f64 = 4e-3;
const FIRST_CPU_SECONDS_IN_FLIGHT: f64 = 4.5e-3;

/// What a job finds at the devices between which it chooses.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The device's name.
    pub device: &'a str,
    /// Slices of other jobs that run on it.
    pub others: usize,
    /// The same of the CPU.
    pub others_on_cpu: usize,
    /// Slices at once on each at most.
    pub at_once: usize,
}

impl Choice<'_> {
    /// Slices beside one of a job's, among so many others.
    fn beside(&self, slices: u64, others: usize) -> usize {
        let slices = usize::try_from(slices).unwrap_or(usize::MAX);
        slices.saturating_add(others).clamp(1, self.at_once.max(1)) - 1
    }

    /// Whether a job of slices of such shapes ends sooner on the device than on the CPU both if all of it survives and if
    /// the least does that is thought possible: nobody knows yet.
    pub fn ends_sooner(&self, model: &dyn Predict, shapes: &Shapes) -> bool {
        let there = self.beside(shapes.slices(), self.others);
        let here = self.beside(shapes.slices(), self.others_on_cpu);
        let on_cpu = |slice: &_| model.time(CPU, slice, here).seconds;
        match model.knows(self.device) {
            true => (shapes.extremes())
                .into_iter()
                .all(|slice| model.time(self.device, &slice, there).seconds < on_cpu(&slice)),
            false => {
                let in_flight = (there + 1) as f64;
                let least = FIRST_CPU_SECONDS + FIRST_CPU_SECONDS_IN_FLIGHT * in_flight;
                on_cpu(&shapes.mean()) >= least
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{large, rates};
    use crate::model::{Rates, SliceShape};
    use crate::predict::{Learned, SliceTime};

    /// Predicts by rates that are given.
    #[derive(Debug)]
    struct Given(Rates);

    impl Predict for Given {
        fn time(&self, device: &str, shape: &SliceShape, beside: usize) -> SliceTime {
            let predicted = self.0.predict(device, shape, 1 + beside as u32);
            let predicted = predicted.expect("it has rates");
            SliceTime {
                seconds: predicted.seconds,
                cpu_seconds: predicted.cpu_seconds,
            }
        }

        fn observed(&self, _: &str, _: &SliceShape, _: usize, _: SliceTime) {}

        fn knows(&self, device: &str) -> bool {
            self.0.has(device)
        }
    }

    /// A slice before anything is dropped.
    fn inputs() -> SliceShape {
        SliceShape {
            bytes_out: large().bytes_in,
            ..large()
        }
    }

    const GPU: &str = "cuda:0";

    fn choice(at_once: usize) -> Choice<'static> {
        Choice {
            device: GPU,
            others: 0,
            others_on_cpu: 0,
            at_once,
        }
    }

    fn is_worth(model: &Given, slice_bytes: u64, slices: usize, at_once: usize) -> bool {
        let times = slices as f64 * slice_bytes as f64 / inputs().bytes_in as f64;
        let shapes = Shapes::of_slices(inputs().scaled(times), &vec![slice_bytes; slices]);
        choice(at_once).ends_sooner(model, &shapes)
    }

    const MOST: u64 = 1 << 30;

    /// From how much input on slices like `all` of which so much is kept win.
    fn wins_from(all: &SliceShape, kept: f64, at_once: u32) -> u64 {
        let bytes_out = (all.bytes_in as f64 * kept) as u64;
        let shape = SliceShape { bytes_out, ..*all };
        let least = rates().wins_from(GPU, &shape, at_once, MOST);
        least.expect("it is quicker at length")
    }

    /// The same whatever is kept.
    fn always_wins_from(all: &SliceShape, at_once: u32) -> u64 {
        let least_kept = 1.0 / f64::from(all.runs);
        let [all_kept, least_kept] = [1.0, least_kept].map(|kept| wins_from(all, kept, at_once));
        all_kept.max(least_kept)
    }

    #[test]
    fn a_gpu_has_jobs_from_where_on_it_wins_and_none_where_it_loses() {
        let given = Given(rates());
        for at_once in [1, 8] {
            let least = always_wins_from(&inputs(), at_once);
            let is_worth = |bytes| is_worth(&given, bytes, at_once as usize, at_once as usize);
            for bytes in [least / 100, least / 2, least * 9 / 10] {
                assert!(!is_worth(bytes), "{bytes} of {least}");
            }
            for bytes in [least * 11 / 10, 2 * least, 100 * least] {
                assert!(is_worth(bytes), "{bytes} of {least}");
            }
        }
    }

    /// A job of one slice, beside others of other jobs.
    #[test]
    fn others_slices_count_where_they_run() {
        let model = Given(rates());
        let bytes = 21 * always_wins_from(&inputs(), 1) / 20;
        let slice = inputs().scaled(bytes as f64 / inputs().bytes_in as f64);
        let shapes = Shapes::of_slices(slice, &[bytes]);
        let is_worth = |others, others_on_cpu| {
            let choice = Choice {
                others,
                others_on_cpu,
                ..choice(8)
            };
            choice.ends_sooner(&model, &shapes)
        };
        assert!(is_worth(0, 0) && !is_worth(7, 0) && !is_worth(700, 0));
        assert!(is_worth(0, 700));
    }

    /// By rates, of any part of the input that may survive.
    #[test]
    fn a_gpu_that_loses_if_much_is_dropped_has_no_jobs_of_which_nobody_knows() {
        let model = Given(rates());
        let all = SliceShape {
            runs: 8,
            ..inputs()
        };
        let borders = [1.0, 0.7, 0.4, 0.2, 1.0 / 8.0].map(|kept| wins_from(&all, kept, 1));
        let most = borders.into_iter().fold(0, u64::max);
        assert!(
            borders.iter().any(|least| least + least / 10 < most),
            "{borders:?}"
        );
        let is_worth = |bytes: u64| {
            let slice = all.scaled(bytes as f64 / all.bytes_in as f64);
            choice(1).ends_sooner(&model, &Shapes::of_slices(slice, &[bytes]))
        };
        assert!(!is_worth(most * 95 / 100) && is_worth(most * 105 / 100));
    }

    #[test]
    fn a_gpu_that_always_loses_has_no_jobs() {
        let mut rates = rates();
        let gpu = rates.gpus.get_mut(GPU).expect("it has rates");
        gpu.to_device = 1e6;
        let given = Given(rates);
        for bytes in [1 << 10, 1 << 20, 1 << 30] {
            assert!(!is_worth(&given, bytes, 8, 8));
        }
    }

    /// Bytes of keys and values, and of input from which on slices take less time on an H200 by themselves and 16 at
    /// once, as measured; of the largest values, no slice of a usual size does.
    const WINS_FROM: [(u64, u64, u64, u64); 8] = [
        (8, 32, 794_620, 7_614_434),
        (8, 64, 1_724_409, 15_757_251),
        (16, 128, 2_727_925, 30_678_922),
        (16, 256, 2_588_662, 26_169_244),
        (16, 1024, 4_059_120, 36_790_131),
        (16, 2000, 5_230_572, 159_493_535),
        (16, 3000, 4_374_511, 74_407_652),
        (16, 4096, 5_402_603, 128 << 20),
    ];

    #[test]
    fn before_anything_is_known_a_gpu_has_slices_with_work_enough_alone() {
        let model = Learned::default();
        for (key, value, alone, at_once) in WINS_FROM {
            let is_worth = |slice_bytes: u64, slices: usize| {
                let entries = slices as u64 * slice_bytes / (key + 8 + value);
                let all = SliceShape {
                    bytes_in: slices as u64 * slice_bytes,
                    entries,
                    key_bytes: entries * (key + 8),
                    value_bytes: entries * value,
                    ..inputs()
                };
                let shapes = Shapes::of_slices(all, &vec![slice_bytes; slices]);
                choice(16).ends_sooner(&model, &shapes)
            };
            assert!(!is_worth(alone, 1) && is_worth(5 * alone, 1), "{value}");
            assert!(
                !is_worth(at_once, 16) && is_worth(5 * at_once, 16),
                "{value}"
            );
        }
    }
}
