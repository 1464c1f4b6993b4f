//! Whether a job is worth a device that nobody named: what [`Device::Auto`](crate::Device::Auto) leaves to the CPU.

use crate::model::CPU;
use crate::predict::Predict;
use crate::run::Shapes;

/// Before anything is known of a GPU: jobs with less input are not worth it. Copies, some sixty launches and a dozen
/// waits cost it five milliseconds. Of 16 B/256 B it wins from 4 MB on (docs/design/gpu.md).
const FIRST_MIN_JOB_BYTES: u64 = 4 << 20;

/// Whether a job of slices of such shapes ends sooner on a device than on the CPU, with so many slices at once on
/// each.
pub fn ends_sooner(model: &dyn Predict, device: &str, shapes: &Shapes, at_once: usize) -> bool {
    if !model.knows(device) {
        return shapes.bytes() >= FIRST_MIN_JOB_BYTES;
    }
    let in_flight = (at_once as u64).clamp(1, shapes.slices());
    let seconds = |device| {
        let slice = model.time(device, &shapes.mean(), in_flight as usize - 1);
        slice.seconds * shapes.slices() as f64 / in_flight as f64
    };
    seconds(device) < seconds(CPU)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{large, rates};
    use crate::model::{Rates, SliceShape};
    use crate::predict::SliceTime;

    /// Predicts by rates that are given, if they are.
    #[derive(Debug)]
    struct Given(Option<Rates>);

    impl Predict for Given {
        fn time(&self, device: &str, shape: &SliceShape, beside: usize) -> SliceTime {
            let rates = self.0.as_ref().expect("it is asked what it knows");
            let predicted = rates.predict(device, shape, 1 + beside as u32);
            let predicted = predicted.expect("it has rates");
            SliceTime {
                seconds: predicted.seconds,
                cpu_seconds: predicted.cpu_seconds,
            }
        }

        fn observed(&self, _: &str, _: &SliceShape, _: usize, _: SliceTime) {}

        fn knows(&self, device: &str) -> bool {
            self.0.as_ref().is_some_and(|rates| rates.has(device))
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
            let given = Given(Some(rates.clone()));
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
        let given = Given(Some(rates));
        for bytes in [1 << 10, 1 << 20, 1 << 30] {
            assert!(!is_worth(&given, bytes, 8, 8));
        }
    }

    #[test]
    fn before_anything_is_known_large_jobs_are_tried() {
        let given = Given(None);
        assert!(!is_worth(&given, FIRST_MIN_JOB_BYTES - 1, 1, 8));
        assert!(is_worth(&given, FIRST_MIN_JOB_BYTES, 1, 8));
    }
}
