//! What runs where, and which device should take the next slice.

/// Number of the host's processors among devices.
pub const HOST: usize = 0;

/// A device that may take a job's slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its number; [`HOST`] is the CPU.
    pub device: usize,
    /// How long one of the job's slices is expected to take there.
    pub seconds: f64,
}

/// A slice that runs.
#[derive(Debug)]
struct Running {
    number: u64,
    began: f64,
    expected: f64,
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

/// The slices that run, by device.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Vec<Running>>);

/// What is to be given out: slices of a job, and who may take them.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The devices that may take a slice.
    pub candidates: &'a [Candidate],
    /// Slices that have not begun, of this job and, in as many of its size, of all that want the same devices.
    pub left: u64,
    /// Slices that the host may still take while others can.
    pub host_left: u64,
}

impl Offer<'_> {
    fn may_take(&self, device: usize) -> bool {
        device != HOST || self.host_left > 0 || self.candidates.len() == 1
    }
}

impl Lanes {
    /// Slices that run on a device.
    pub fn running(&self, device: usize) -> usize {
        self.0.get(device).map_or(0, Vec::len)
    }

    /// A slice begins.
    pub fn begin(&mut self, device: usize, number: u64, now: f64, expected: f64) {
        if self.0.len() <= device {
            self.0.resize_with(device + 1, Vec::new);
        }
        self.0[device].push(Running {
            number,
            began: now,
            expected,
        });
    }

    /// A slice has ended.
    pub fn end(&mut self, device: usize, number: u64) {
        if let Some(lane) = self.0.get_mut(device) {
            lane.retain(|running| running.number != number);
        }
    }

    /// The device that should take the next slice now, each running `most` at a time: the fastest one without
    /// a full house, unless others will have done all that is left before it were done. `None`: it is better
    /// to wait for one of them.
    pub fn choose(&self, offer: &Offer<'_>, most: usize, now: f64) -> Option<Candidate> {
        let mut free: Vec<_> = (offer.candidates.iter().copied())
            .filter(|c| offer.may_take(c.device) && self.running(c.device) < most)
            .collect();
        free.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let is_in_time = |c: &Candidate| self.done_before(c, offer, most, now) < offer.left.max(1);
        free.into_iter().find(is_in_time)
    }

    /// The device that would end the next slice first if those that run elsewhere were not waited for.
    pub fn favourite(candidates: &[Candidate]) -> Option<usize> {
        let first = candidates
            .iter()
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        first.map(|c| c.device)
    }

    /// Slices that the others do before `one` has done its first.
    fn done_before(&self, one: &Candidate, offer: &Offer<'_>, most: usize, now: f64) -> u64 {
        let others = offer.candidates.iter().filter(|c| c.device != one.device);
        others
            .map(|other| {
                let running = self.0.get(other.device).map_or(&[][..], Vec::as_slice);
                let free = most.saturating_sub(running.len());
                let idle = std::iter::repeat_n(0.0, free);
                let lanes = running.iter().map(|slice| slice.left(now)).chain(idle);
                let done: u64 = lanes
                    .map(|begin| before(one.seconds - begin, other.seconds))
                    .sum();
                match other.device {
                    HOST => done.min(offer.host_left),
                    _ => done,
                }
            })
            .fold(0, u64::saturating_add)
    }
}

/// How many slices of `each` seconds end before `seconds` have gone.
fn before(seconds: f64, each: f64) -> u64 {
    // Neither of two that are equal waits for the other.
    let ended = (seconds / each.max(f64::MIN_POSITIVE)).ceil() - 1.0;
    ended.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(seconds: [f64; 2]) -> [Candidate; 2] {
        [0, 1].map(|device| Candidate {
            device,
            seconds: seconds[device],
        })
    }

    fn choose(lanes: &Lanes, seconds: [f64; 2], left: u64) -> Option<usize> {
        let offer = Offer {
            candidates: &candidates(seconds),
            left,
            host_left: u64::MAX,
        };
        lanes.choose(&offer, 1, 0.0).map(|c| c.device)
    }

    #[test]
    fn the_fastest_that_is_free_comes_first() {
        let mut lanes = Lanes::default();
        assert_eq!(choose(&lanes, [2.0, 1.0], 1), Some(1));
        assert_eq!(choose(&lanes, [1.0, 2.0], 1), Some(0));
        assert_eq!(choose(&lanes, [1.0, 1.0], 1), Some(0));
        lanes.begin(0, 7, 0.0, 1.0);
        assert_eq!(choose(&lanes, [1.0, 1.0], 1), Some(1));
        lanes.end(0, 7);
        assert_eq!(lanes.running(0), 0);
    }

    #[test]
    fn a_slow_device_helps_while_it_is_in_time_and_no_longer() {
        let mut lanes = Lanes::default();
        lanes.begin(1, 1, 0.0, 1.0);
        // The other one does 8 more while this one does one.
        assert_eq!(choose(&lanes, [9.5, 1.0], 9), Some(0));
        assert_eq!(choose(&lanes, [9.5, 1.0], 8), None);
    }

    #[test]
    fn who_is_late_is_waited_for_less() {
        let mut lanes = Lanes::default();
        lanes.begin(1, 1, 0.0, 1.0);
        let candidates = candidates([5.0, 1.0]);
        let offer = Offer {
            candidates: &candidates,
            left: 1,
            host_left: 1,
        };
        let at = |now| lanes.choose(&offer, 1, now).map(|c| c.device);
        assert_eq!((at(0.5), at(2.0)), (None, None));
        assert_eq!(at(5.0), Some(0));
    }

    #[test]
    fn the_hosts_share_is_bounded_where_others_can() {
        let lanes = Lanes::default();
        let both = candidates([1.0, 9.0]);
        let offer = |candidates, host_left| Offer {
            candidates,
            left: 100,
            host_left,
        };
        let chosen = |offer: &Offer<'_>| lanes.choose(offer, 1, 0.0).map(|c| c.device);
        assert_eq!(chosen(&offer(&both, 1)), Some(0));
        assert_eq!(chosen(&offer(&both, 0)), Some(1));
        assert_eq!(chosen(&offer(&both[..1], 0)), Some(0), "nobody else can");
    }
}
