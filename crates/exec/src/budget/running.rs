//! What runs where, and which device should take the next task.

/// Number of the host's processors among devices.
pub const HOST: usize = 0;

/// A device that may take a job's tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its number; [`HOST`] is the CPU.
    pub device: usize,
    /// How long one of the job's tasks is expected to take there.
    pub seconds: f64,
}

/// A task that runs.
#[derive(Debug)]
struct Running {
    number: u64,
    began: f64,
    expected: f64,
    bytes: u64,
}

impl Running {
    /// Seconds that it still takes. Who is late is expected to take as long again.
    fn left(&self, now: f64) -> f64 {
        let elapsed = now - self.began;
        match elapsed < self.expected {
            true => self.expected - elapsed,
            false => elapsed,
        }
    }
}

/// The tasks that run, by device.
#[derive(Debug, Default)]
pub struct InFlight(Vec<Vec<Running>>);

/// What is to be given out: tasks of a job, and who may take them.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The devices that may take a task.
    pub candidates: &'a [Candidate],
    /// Tasks that have not begun, of this job and, in as many of its size, of all that want the same devices.
    pub left: u64,
}

impl InFlight {
    fn on(&self, device: usize) -> &[Running] {
        self.0.get(device).map_or(&[], |tasks| &**tasks)
    }

    /// Tasks that run on a device.
    pub fn running(&self, device: usize) -> usize {
        self.on(device).len()
    }

    /// Bytes of input of the tasks that run on a device.
    pub fn running_bytes(&self, device: usize) -> u64 {
        self.on(device).iter().map(|task| task.bytes).sum()
    }

    /// A task over so many bytes begins.
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

    /// A task has ended.
    pub fn end(&mut self, device: usize, number: u64) {
        if let Some(tasks) = self.0.get_mut(device) {
            tasks.retain(|running| running.number != number);
        }
    }

    /// The device that should take the next task now, each of which has room for `most`: of those that are in time, the one
    /// with the least work queued, this task included; the first of several, which is the CPU. `None`: it is better to wait
    /// for one of them.
    pub fn choose(&self, offer: &Offer<'_>, most: usize, now: f64) -> Option<Candidate> {
        let queued = |c: &Candidate| {
            let running = self.on(c.device).iter();
            running.map(|task| task.left(now)).sum::<f64>() + c.seconds
        };
        let in_time = self.in_time(offer, most, now).into_iter();
        let free = in_time.filter(|c| self.running(c.device) < most);
        free.min_by(|a, b| {
            let by_queue = queued(a).total_cmp(&queued(b));
            by_queue.then(a.device.cmp(&b.device))
        })
    }

    /// The devices that may take a task, without those that have not done one before the others have done all
    /// that is left.
    fn in_time(&self, offer: &Offer<'_>, most: usize, now: f64) -> Vec<Candidate> {
        let mut all = offer.candidates.to_vec();
        all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        while let [others @ .., slowest] = &*all
            && !others.is_empty()
            && self.done_before(slowest.seconds, others, most, now) >= offer.left.max(1)
        {
            all.pop();
        }
        all
    }

    /// Tasks that `devices` do in so many seconds.
    fn done_before(&self, seconds: f64, devices: &[Candidate], most: usize, now: f64) -> u64 {
        let done = devices.iter().flat_map(|device| {
            let running = self.on(device.device);
            let idle = std::iter::repeat_n(0.0, most.saturating_sub(running.len()));
            let begin = running.iter().map(|task| task.left(now)).chain(idle);
            begin.map(|begin| before(seconds - begin, device.seconds))
        });
        done.fold(0, u64::saturating_add)
    }

    /// The device that would end the next task first if those that run elsewhere were not waited for.
    pub fn favourite(candidates: &[Candidate]) -> Option<usize> {
        let first = candidates
            .iter()
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        first.map(|c| c.device)
    }
}

/// How many tasks of `each` seconds end before `seconds` have gone.
fn before(seconds: f64, each: f64) -> u64 {
    // Neither of two that are equal waits for the other.
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
        most: usize,
    ) -> Option<usize> {
        let offer = Offer {
            candidates: &candidates(seconds),
            left,
        };
        in_flight.choose(&offer, most, 0.0).map(|c| c.device)
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
        // The other one does 8 more while this one does one.
        assert_eq!(choose(&in_flight, [9.5, 1.0], 9), Some(0));
        assert_eq!(choose(&in_flight, [9.5, 1.0], 8), None);
        // So do two others that do 4 each.
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
