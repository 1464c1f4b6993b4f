//! What runs where, and which device should take the next slice.

use super::mix::{self, Beside};

/// Number of the host's processors among devices.
pub const HOST: usize = 0;

/// A device that may take a job's slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its number; [`HOST`] is the CPU.
    pub device: usize,
    /// How long one of the job's slices is expected to take there by itself.
    pub alone: f64,
    /// The same in a full house.
    pub seconds: f64,
    /// Of the host's processors, to feed it there.
    pub cpu_seconds: f64,
    /// Whether a full house there waits most for what the host gives it.
    pub host_bound: bool,
}

impl Candidate {
    /// How long a slice takes with so many others beside it where there is room for `most`.
    pub fn beside(&self, others: usize, most: usize) -> f64 {
        let full = most.saturating_sub(1).max(1);
        let crowd = (others as f64 / full as f64).min(1.0);
        self.alone + (self.seconds - self.alone) * crowd
    }
}

/// A slice that runs.
#[derive(Debug)]
struct Running {
    number: u64,
    began: f64,
    expected: f64,
    /// Processors that it keeps busy.
    processors: f64,
    /// See [`Candidate::host_bound`].
    host_bound: bool,
    /// What its device had done by then; see [`Lane::busy_until`].
    busy: f64,
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

    /// Whether it takes so much longer than expected that it may never end.
    fn is_overdue(&self, now: f64) -> bool {
        const TIMES: f64 = 4.0;
        now - self.began > TIMES * self.expected
    }
}

/// The slices that run on a device.
#[derive(Debug, Default)]
struct Lane {
    running: Vec<Running>,
    /// Seconds of all slices until the last one began or ended.
    busy: f64,
    /// When that was.
    changed: f64,
}

impl Lane {
    /// Seconds of all slices until `now`, those of one beside those of another.
    fn busy_until(&self, now: f64) -> f64 {
        self.busy + (now - self.changed) * self.running.len() as f64
    }

    fn change(&mut self, now: f64) {
        self.busy = self.busy_until(now);
        self.changed = now;
    }
}

/// The slices that run, by device.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Lane>);

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
    fn on(&self, device: usize) -> &[Running] {
        self.0.get(device).map_or(&[], |lane| &*lane.running)
    }

    /// Slices that run on a device.
    pub fn running(&self, device: usize) -> usize {
        self.on(device).len()
    }

    /// A slice begins where there is room for `most`.
    pub fn begin(&mut self, on: &Candidate, number: u64, now: f64, most: usize) {
        if self.0.len() <= on.device {
            self.0.resize_with(on.device + 1, Lane::default);
        }
        let expected = on.beside(self.running(on.device), most);
        let lane = &mut self.0[on.device];
        lane.change(now);
        lane.running.push(Running {
            number,
            began: now,
            expected,
            processors: mix::processors(on, most, most) / most as f64,
            host_bound: on.host_bound,
            busy: lane.busy,
        });
    }

    /// A slice has ended.
    pub fn end(&mut self, device: usize, number: u64, now: f64) {
        if let Some(lane) = self.0.get_mut(device) {
            lane.change(now);
            lane.running.retain(|running| running.number != number);
        }
    }

    /// How many slices have run on a device on average since one of them began; 1 if it has ended.
    pub fn in_flight(&self, device: usize, number: u64, now: f64) -> f64 {
        let lane = self.0.get(device);
        let mean = lane.and_then(|lane| {
            let slice = lane.running.iter().find(|slice| slice.number == number)?;
            let elapsed = (now - slice.began).max(f64::MIN_POSITIVE);
            Some((lane.busy_until(now) - slice.busy) / elapsed)
        });
        mean.map_or(1.0, |mean| mean.max(1.0))
    }

    /// The device that should take the next slice now: of those that share the host's processors best, the one
    /// that ends it first. `None`: it is better to wait for one of them.
    pub fn choose(&self, offer: &Offer<'_>, most: usize, now: f64) -> Option<Candidate> {
        let in_use = self.in_time(offer, most, now);
        let room = in_use.iter().zip(self.shares(&in_use, offer, most));
        let free = room.filter(|(c, most)| self.running(c.device) < *most);
        let ends = |c: &Candidate| c.beside(self.running(c.device), most);
        let first = free.min_by(|(a, _), (b, _)| ends(a).total_cmp(&ends(b)));
        first.map(|(c, _)| *c)
    }

    /// The devices that may take a slice, without those that have not done one before the others have done all
    /// that is left, and without those that seem to do nothing if others do.
    fn in_time(&self, offer: &Offer<'_>, most: usize, now: f64) -> Vec<Candidate> {
        let mut all: Vec<_> = (offer.candidates.iter().copied())
            .filter(|c| offer.may_take(c.device))
            .collect();
        let is_alive = |c: &Candidate| {
            let running = self.on(c.device);
            running.is_empty() || running.iter().any(|slice| !slice.is_overdue(now))
        };
        if all.iter().any(is_alive) {
            all.retain(is_alive);
        }
        let ends = |c: &Candidate| c.beside(self.running(c.device), most);
        all.sort_by(|a, b| ends(a).total_cmp(&ends(b)));
        while let [others @ .., slowest] = &*all
            && !others.is_empty()
            && self.done_before(ends(slowest), others, offer, most, now) >= offer.left.max(1)
        {
            all.pop();
        }
        all
    }

    /// Slices in flight on each of `devices`, beside those on others. The host's do not count among these: they
    /// give way.
    fn shares(&self, devices: &[Candidate], offer: &Offer<'_>, most: usize) -> Vec<usize> {
        let is_other = |device: usize| devices.iter().all(|c| c.device != device);
        let lanes = || self.0.iter().enumerate().skip(HOST + 1);
        let others = lanes().filter(|(device, _)| is_other(*device));
        let others = others.flat_map(|(_, lane)| &lane.running);
        // Those of another job may wait for the host where this one's do not.
        let mut all = lanes().flat_map(|(_, lane)| &lane.running);
        let beside = Beside {
            busy: others.map(|slice| slice.processors).sum(),
            host_bound: all.any(|slice| slice.host_bound),
            cpu_is_bounded: offer.host_left < offer.left,
        };
        mix::in_flight(devices, most, beside)
    }

    /// The device that would end the next slice first if those that run elsewhere were not waited for.
    pub fn favourite(candidates: &[Candidate]) -> Option<usize> {
        let first = candidates
            .iter()
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        first.map(|c| c.device)
    }

    /// Slices that `devices` do in so many seconds.
    fn done_before(
        &self,
        seconds: f64,
        devices: &[Candidate],
        offer: &Offer<'_>,
        most: usize,
        now: f64,
    ) -> u64 {
        let in_flight = self.shares(devices, offer, most).into_iter();
        let done = devices.iter().zip(in_flight).map(|(device, in_flight)| {
            let running = self.on(device.device);
            let free = in_flight.saturating_sub(running.len());
            let idle = std::iter::repeat_n(0.0, free);
            let lanes = running.iter().map(|slice| slice.left(now)).chain(idle);
            let each = device.beside(in_flight.saturating_sub(1), most);
            let done = lanes
                .map(|begin| before(seconds - begin, each))
                .fold(0, u64::saturating_add);
            match device.device {
                HOST => done.min(offer.host_left),
                _ => done,
            }
        });
        done.fold(0, u64::saturating_add)
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
            alone: seconds[device],
            seconds: seconds[device],
            cpu_seconds: 0.0,
            host_bound: false,
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
        lanes.begin(&candidates([1.0, 1.0])[0], 7, 0.0, 1);
        assert_eq!(choose(&lanes, [1.0, 1.0], 1), Some(1));
        lanes.end(0, 7, 1.0);
        assert_eq!(lanes.running(0), 0);
    }

    #[test]
    fn those_that_ran_beside_a_slice_count_as_long_as_they_did() {
        let mut lanes = Lanes::default();
        let on = candidates([1.0, 1.0])[1];
        lanes.begin(&on, 1, 10.0, 4);
        assert_eq!(lanes.in_flight(1, 1, 10.0), 1.0);
        lanes.begin(&on, 2, 12.0, 4);
        lanes.begin(&on, 3, 12.0, 4);
        lanes.end(1, 3, 14.0);
        // 1 for two seconds, 3 for two, 2 for four.
        assert_eq!(lanes.in_flight(1, 1, 18.0), 2.0);
        lanes.end(1, 1, 18.0);
        assert_eq!(
            lanes.in_flight(1, 2, 24.0),
            (3.0 * 2.0 + 2.0 * 4.0 + 6.0) / 12.0
        );
        assert_eq!(lanes.in_flight(1, 1, 24.0), 1.0, "it has ended");
    }

    #[test]
    fn a_slow_device_helps_while_it_is_in_time_and_no_longer() {
        let mut lanes = Lanes::default();
        lanes.begin(&candidates([1.0, 1.0])[1], 1, 0.0, 1);
        // The other one does 8 more while this one does one.
        assert_eq!(choose(&lanes, [9.5, 1.0], 9), Some(0));
        assert_eq!(choose(&lanes, [9.5, 1.0], 8), None);
    }

    #[test]
    fn who_is_late_is_waited_for_less() {
        let mut lanes = Lanes::default();
        lanes.begin(&candidates([1.0, 1.0])[1], 1, 0.0, 1);
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
    fn a_device_that_has_all_processors_and_does_nothing_loses_them() {
        let mut lanes = Lanes::default();
        let mut both = candidates([2.0, 1.0]);
        both[0].cpu_seconds = 2.0;
        both[1].cpu_seconds = 1.0;
        lanes.begin(&both[1], 1, 0.0, 1);
        let at = |now, candidates| {
            let offer = Offer {
                candidates,
                left: 100,
                host_left: 100,
            };
            lanes.choose(&offer, 1, now).map(|c| c.device)
        };
        assert_eq!((at(3.9, &both), at(4.1, &both)), (None, Some(0)));
        assert_eq!(at(4.1, &both[1..]), None, "it has one");
    }

    #[test]
    fn a_device_that_seems_to_take_no_time_does_all_that_is_left() {
        let offer = Offer {
            candidates: &candidates([1.0, f64::MIN_POSITIVE]),
            left: 9,
            host_left: 9,
        };
        let chosen = Lanes::default().choose(&offer, 3, 0.0);
        assert_eq!(chosen.map(|c| c.device), Some(1));
        let mut lanes = Lanes::default();
        let swift = candidates([1.0, f64::MIN_POSITIVE])[1];
        (0..2).for_each(|number| lanes.begin(&swift, number, 0.0, 2));
        assert_eq!(lanes.choose(&offer, 2, 0.0), None);
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
