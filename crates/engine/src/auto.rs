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

/// Whether a job of slices of such shapes ends sooner on a device than on the CPU, with so many slices at once on
/// each.
pub fn ends_sooner(model: &dyn Predict, device: &str, shapes: &Shapes, at_once: usize) -> bool {
    let in_flight = (at_once as u64).clamp(1, shapes.slices());
    let seconds = |device| {
        let slice = model.time(device, &shapes.mean(), in_flight as usize - 1);
        slice.seconds
    };
    match model.knows(device) {
        true => seconds(device) < seconds(CPU),
        false => {
            let least = FIRST_CPU_SECONDS + FIRST_CPU_SECONDS_IN_FLIGHT * in_flight as f64;
            seconds(CPU) >= least
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

    const GPU: &str = "cuda:0";

    fn is_worth(model: &Given, slice_bytes: u64, slices: usize, at_once: usize) -> bool {
        let times = slices as f64 * slice_bytes as f64 / large().bytes_in as f64;
        let shapes = Shapes::of_slices(large().scaled(times), &vec![slice_bytes; slices]);
        ends_sooner(model, GPU, &shapes, at_once)
    }

    #[test]
    fn a_gpu_has_jobs_from_where_on_it_wins_and_none_where_it_loses() {
        const MOST: u64 = 1 << 30;
        let rates = rates();
        for at_once in [1, 8] {
            let least = rates.wins_from(GPU, &large(), at_once, MOST);
            let least = least.expect("it is quicker at length");
            let given = Given(rates.clone());
            let is_worth = |bytes| is_worth(&given, bytes, at_once as usize, at_once as usize);
            for bytes in [least / 100, least / 2, least * 9 / 10] {
                assert!(!is_worth(bytes), "{bytes} of {least}");
            }
            for bytes in [least * 11 / 10, 2 * least, 100 * least] {
                assert!(is_worth(bytes), "{bytes} of {least}");
            }
        }
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
                    ..large()
                };
                let shapes = Shapes::of_slices(all, &vec![slice_bytes; slices]);
                ends_sooner(&model, GPU, &shapes, 16)
            };
            assert!(!is_worth(alone, 1) && is_worth(5 * alone, 1), "{value}");
            assert!(
                !is_worth(at_once, 16) && is_worth(5 * at_once, 16),
                "{value}"
            );
        }
    }
}
