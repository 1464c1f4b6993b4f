//! What slices at once on a GPU tell of what they share there.

use crate::model::predict::{Part, Prediction};
use crate::model::probe::clamp;
use crate::model::rates::{CROWDED, GpuRates, OVERLAP, Overlap};

/// Slices of one kind that ran at once.
pub struct Crowd {
    /// What one of them takes by itself.
    pub alone: Prediction,
    /// What each took on average.
    pub seconds: f64,
    /// Processor time of the host for each.
    pub cpu_seconds: f64,
}

impl Crowd {
    /// What each of `at_once` slices added to what the others took, as a share of the time for which it keeps the busiest of
    /// these parts busy.
    fn overlap(&self, at_once: u32, of: impl Fn(Part) -> bool) -> f64 {
        let others = f64::from(at_once.max(2) - 1);
        let added = (self.seconds - self.alone.seconds) / others;
        clamp(added / self.alone.busiest(of), &OVERLAP)
    }
}

/// Sets what `at_once` slices do to each other, by some that keep kernels busy for long beside the host, and by some that
/// keep the host busy for as long as any do. The latter may wait for kernels all the same: then the host's share may be too
/// large, and such slices are still predicted as they were measured.
pub fn share(gpu: &mut GpuRates, at_once: u32, [kernels, host]: &[Crowd; 2]) {
    let device = kernels.overlap(at_once, |part| !part.is_hosts());
    let by_host = host.overlap(at_once, Part::is_hosts);
    // Those that wait for kernels tell of the host no more than that it is not slower.
    let waits_for_kernels = host.overlap(at_once, |part| !part.is_hosts()) <= device;
    gpu.overlap = Overlap {
        device,
        host: match waits_for_kernels {
            true => by_host.min(Overlap::NONE.host),
            false => by_host,
        },
    };
    let more = [kernels, host].map(|crowd| crowd.cpu_seconds / crowd.alone.cpu_seconds);
    gpu.crowded = clamp(more.iter().sum::<f64>() / more.len() as f64, &CROWDED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SliceShape;
    use crate::model::tests::{large, rates};

    const GPU: &str = "cuda:0";
    const AT_ONCE: u32 = 8;

    /// What slices take at once is predicted as it was, whatever each waited for.
    fn assert_found(host: f64, device: f64) {
        // Kernels take long for entries, files for their bytes.
        let shapes = [
            large(),
            SliceShape {
                entries: 1000,
                ..large()
            },
        ];
        let mut truth = rates();
        (truth.storage.read, truth.storage.write) = (1e10, 1e10);
        let mut found = truth.clone();
        let gpu = truth.gpus.get_mut(GPU).expect("it has rates");
        gpu.overlap = Overlap { host, device };
        let crowds = shapes.map(|shape| {
            let predict = |at_once| truth.predict(GPU, &shape, at_once).expect("it has rates");
            let (alone, all) = (predict(1), predict(AT_ONCE));
            Crowd {
                alone,
                seconds: all.seconds,
                cpu_seconds: all.cpu_seconds,
            }
        });
        let gpu = found.gpus.get_mut(GPU).expect("it has rates");
        (gpu.overlap, gpu.crowded) = (Overlap::NONE, 1.0);
        share(gpu, AT_ONCE, &crowds);
        assert!((gpu.crowded - 1.2).abs() < 1e-9);
        for (shape, crowd) in shapes.iter().zip(crowds) {
            let all = found.predict(GPU, shape, AT_ONCE).expect("it has rates");
            let error = all.seconds / crowd.seconds - 1.0;
            assert!(error.abs() < 1e-9, "{error} at {host} and {device}");
        }
    }

    #[test]
    fn slices_at_once_take_as_long_as_calibration_saw() {
        for (host, device) in [(1.0, 1.0), (0.9, 0.5), (0.5, 0.9), (0.05, 4.0), (0.1, 0.1)] {
            assert_found(host, device);
        }
    }
}
