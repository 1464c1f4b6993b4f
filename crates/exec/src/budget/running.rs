//! The running tasks, and the choice of a device for the next task.

/// Number of the CPU among the devices.
pub const HOST: usize = 0;

/// A device that may run a job's tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its number; [`HOST`] is the CPU.
    pub device: usize,
    /// Expected seconds of one of the job's tasks on this device.
    pub seconds: f64,
}

/// A running task.
#[derive(Debug)]
struct Running {
    number: u64,
    began: f64,
    expected: f64,
    bytes: u64,
}

impl Running {
    /// Returns the expected remaining seconds. A late task is expected to take the elapsed time once more.
    fn remaining(&self, now: f64) -> f64 {
        let elapsed = now - self.began;
        match elapsed < self.expected {
            true => self.expected - elapsed,
            false => elapsed,
        }
    }
}

/// The running tasks by device.
#[derive(Debug, Default)]
pub struct InFlight(Vec<Vec<Running>>);

/// Tasks of a job to be assigned, and the devices that may run them.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The devices that may run a task.
    pub candidates: &'a [Candidate],
    /// Number of tasks that have not begun, of this job and of all other jobs that may use the same devices. The tasks
    /// of others are converted to this job's task size.
    pub left: u64,
}

impl InFlight {
    fn on(&self, device: usize) -> &[Running] {
        self.0.get(device).map_or(&[], |tasks| &**tasks)
    }

    /// Number of tasks that run on a device.
    pub fn running(&self, device: usize) -> usize {
        self.on(device).len()
    }

    /// Input bytes of the tasks that run on a device.
    pub fn running_bytes(&self, device: usize) -> u64 {
        self.on(device).iter().map(|task| task.bytes).sum()
    }

    /// Adds a task with `bytes` bytes of input.
    pub fn begin(&mut self, on: &Candidate, number: u64, now: f64, bytes: u64) {
        if self.0.len() <= on.device {
            self.0.resize_with(on.device + 1, Vec::new);
        }
        self.0[on.device].push(Running {
            number,
            began: now,
            expected: on.seconds,
            bytes,
        });
    }

    /// Removes a task that has ended.
    pub fn end(&mut self, device: usize, number: u64) {
        if let Some(tasks) = self.0.get_mut(device) {
            tasks.retain(|running| running.number != number);
        }
    }

    /// Chooses the device that should run the next task now, of those with fewer than `slots` running tasks. It is the
    /// one with the least queued work, this task included, among those that are in time. A tie goes to the lowest
    /// number, so the CPU comes first. Returns `None` if waiting for a device is better.
    pub fn choose(&self, offer: &Offer<'_>, slots: usize, now: f64) -> Option<Candidate> {
        let queued = |c: &Candidate| {
            let running = self.on(c.device).iter();
            running.map(|task| task.remaining(now)).sum::<f64>() + c.seconds
        };
        let in_time = self.in_time(offer, slots, now).into_iter();
        let free = in_time.filter(|c| self.running(c.device) < slots);
        free.min_by(|a, b| {
            let by_queue = queued(a).total_cmp(&queued(b));
            by_queue.then(a.device.cmp(&b.device))
        })
    }

    /// Returns the candidates without those on which one task takes so long that the others would finish all remaining
    /// tasks by then.
    fn in_time(&self, offer: &Offer<'_>, slots: usize, now: f64) -> Vec<Candidate> {
        let mut all = offer.candidates.to_vec();
        all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        while let [others @ .., slowest] = &*all
            && !others.is_empty()
            && self.done_before(slowest.seconds, others, slots, now) >= offer.left.max(1)
        {
            all.pop();
        }
        all
    }

    /// Number of tasks that `devices` finish in `seconds`.
    fn done_before(&self, seconds: f64, devices: &[Candidate], slots: usize, now: f64) -> u64 {
        let done = devices.iter().flat_map(|device| {
            let running = self.on(device.device);
            let idle = std::iter::repeat_n(0.0, slots.saturating_sub(running.len()));
            let begin = running.iter().map(|task| task.remaining(now)).chain(idle);
            begin.map(|begin| ended_before(seconds - begin, device.seconds))
        });
        done.fold(0, u64::saturating_add)
    }

    /// Returns the device with the shortest expected time of a task, regardless of its running tasks.
    pub fn fastest(candidates: &[Candidate]) -> Option<usize> {
        let first = candidates
            .iter()
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        first.map(|c| c.device)
    }
}

/// Number of tasks of `each` seconds that end before `seconds` have passed.
fn ended_before(seconds: f64, each: f64) -> u64 {
    // A task that ends at the same moment does not count. So neither of two equally fast devices waits for the other.
    let ended = (seconds / each.max(f64::MIN_POSITIVE)).ceil() - 1.0;
    ended.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates<const N: usize>(seconds: [f64; N]) -> [Candidate; N] {
        std::array::from_fn(|device| Candidate {
            device,
            seconds: seconds[device],
        })
    }

    fn choose_of<const N: usize>(
        in_flight: &InFlight,
        seconds: [f64; N],
        left: u64,
        slots: usize,
    ) -> Option<usize> {
        let offer = Offer {
            candidates: &candidates(seconds),
            left,
        };
        in_flight.choose(&offer, slots, 0.0).map(|c| c.device)
    }

    fn choose(in_flight: &InFlight, seconds: [f64; 2], left: u64) -> Option<usize> {
        choose_of(in_flight, seconds, left, 1)
    }

    #[test]
    fn the_fastest_that_is_free_comes_first() {
        let mut in_flight = InFlight::default();
        assert_eq!(choose(&in_flight, [2.0, 1.0], 1), Some(1));
        assert_eq!(choose(&in_flight, [1.0, 2.0], 1), Some(0));
        assert_eq!(choose(&in_flight, [1.0, 1.0], 1), Some(0), "a tie");
        in_flight.begin(&candidates([1.0, 1.0])[0], 7, 0.0, 100);
        assert_eq!(choose(&in_flight, [1.0, 1.0], 1), Some(1));
        assert_eq!((in_flight.running(0), in_flight.running_bytes(0)), (1, 100));
        in_flight.end(0, 7);
        assert_eq!((in_flight.running(0), in_flight.running_bytes(0)), (0, 0));
    }

    #[test]
    fn tasks_go_to_the_device_with_the_least_work_queued() {
        let mut in_flight = InFlight::default();
        let all = candidates([3.0, 1.0, 1.0]);
        let taken: Vec<_> = (0..9)
            .map(|number| {
                let offer = Offer {
                    candidates: &all,
                    left: 100,
                };
                let chosen = in_flight.choose(&offer, 4, 0.0).expect("there is room");
                in_flight.begin(&chosen, number, 0.0, 1);
                chosen.device
            })
            .collect();
        assert_eq!(taken, [1, 2, 1, 2, 0, 1, 2, 1, 2]);
        assert_eq!(choose_of(&in_flight, [3.0, 1.0, 1.0], 100, 4), Some(0));
    }

    #[test]
    fn a_slow_device_helps_while_it_is_in_time_and_no_longer() {
        let mut in_flight = InFlight::default();
        in_flight.begin(&candidates([1.0, 1.0])[1], 1, 0.0, 1);
        // The other device finishes 8 more while this one finishes one.
        assert_eq!(choose(&in_flight, [9.5, 1.0], 9), Some(0));
        assert_eq!(choose(&in_flight, [9.5, 1.0], 8), None);
        // The same holds for two other devices that finish 4 each.
        in_flight.begin(&candidates([1.0, 1.0, 1.0])[2], 2, 0.0, 1);
        assert_eq!(choose_of(&in_flight, [5.5, 1.0, 1.0], 9, 1), Some(0));
        assert_eq!(choose_of(&in_flight, [5.5, 1.0, 1.0], 8, 1), None);
    }

    #[test]
    fn who_is_late_is_waited_for_less() {
        let mut in_flight = InFlight::default();
        in_flight.begin(&candidates([1.0, 1.0])[1], 1, 0.0, 1);
        let candidates = candidates([5.0, 1.0]);
        let offer = Offer {
            candidates: &candidates,
            left: 1,
        };
        let at = |now| in_flight.choose(&offer, 1, now).map(|c| c.device);
        assert_eq!((at(0.5), at(2.0)), (None, None));
        assert_eq!(at(5.0), Some(0));
    }

    #[test]
    fn a_device_that_seems_to_take_no_time_does_all_that_is_left() {
        assert_eq!(
            choose_of(&InFlight::default(), [1.0, f64::MIN_POSITIVE], 9, 3),
            Some(1)
        );
        let mut in_flight = InFlight::default();
        let swift = candidates([1.0, f64::MIN_POSITIVE])[1];
        (0..2).for_each(|number| in_flight.begin(&swift, number, 0.0, 1));
        assert_eq!(choose_of(&in_flight, [1.0, f64::MIN_POSITIVE], 9, 2), None);
    }
}
