//! Many jobs of one priority and one of another: who goes first, and that nobody waits for ever.

use std::path::PathBuf;
use std::time::Duration;

use super::registry::simulated;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_compaction::{DeviceList, MutableSettings, Settings};
use rockmill_testkit::{FaultRates, UnitProfile, UnitStage};

use super::draw::session_id;
use super::request::Request;
use super::world::{Ending, World};
use crate::database::Database;
use crate::family::Shape;

/// How urgent a job is, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// From level 0.
    High,
    /// From level 0 in the pool of bottommost compactions, or from a deeper level outside of it.
    Normal,
    /// From a deeper level in the pool of bottommost compactions.
    Low,
}

const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

impl Priority {
    pub fn of(world: &World, request: &Request) -> Self {
        let is_deep = world.of(request).1.start_level > 0;
        ALL[usize::from(is_deep) + usize::from(request.in_bottom_pool)]
    }
}

/// The last of the requests is another one than all before.
#[derive(Debug)]
pub struct Crowd {
    /// How many ranks of priority it is behind them; below 0 if it is ahead.
    behind: i64,
}

/// Jobs in the crowd.
const JOBS: u64 = 14;

impl Crowd {
    /// One device that takes a subcompaction at a time, and nothing fails.
    pub fn draw(rng: &mut SmallRng, seed: u64) -> World {
        let [many, odd] = *[
            [Priority::High, Priority::Normal],
            [Priority::High, Priority::Low],
            [Priority::Normal, Priority::Low],
            [Priority::Low, Priority::Normal],
            [Priority::Low, Priority::High],
            [Priority::Normal, Priority::High],
        ]
        .choose(rng)
        .expect("there are some");
        let level = |priority| if priority == Priority::Low { 3 } else { 0 };
        let shape = |priority, keys, files| Shape {
            keys,
            files,
            start_level: level(priority),
            may_have_large_values: false,
            target_bytes: 512..700,
            ..Shape::default()
        };
        let databases = [
            (many, 240..250, 4..=4),
            (many, 240..250, 4..=4),
            (odd, 10..15, 1..=1),
        ];
        let databases = databases.into_iter().enumerate();
        let databases: Vec<_> = databases
            .map(|(number, (priority, keys, files))| {
                let shapes = [shape(priority, keys, files)];
                let database = Database::with_families(rng, &shapes);
                (PathBuf::from(format!("/db{number}")), database)
            })
            .collect();
        let request = |number: u64, database, priority, begins| Request {
            database,
            family: 0,
            in_bottom_pool: priority != Priority::High,
            session_id: session_id(seed, number),
            begins: Duration::from_secs_f64(begins),
            cancelled: None,
        };
        let mut requests: Vec<_> = (0..JOBS)
            .map(|number| request(number, rng.random_range(0..2), many, 0.0))
            .collect();
        // When the crowd has settled, and has most of its work before it.
        requests.push(request(JOBS, 2, odd, rng.random_range(0.1..0.2)));
        let device = simulated(&format!("{seed}-crowd"), profile());
        World {
            databases,
            requests,
            changes: Vec::new(),
            settings: Settings {
                mutable: MutableSettings {
                    threads: 1,
                    sync_threads: Some(rng.random_range(0..=1)),
                    ..MutableSettings::default()
                },
                device: DeviceList::try_from(&[device][..]).expect("one"),
                ..Settings::default()
            },
            profiles: vec![profile()],
            crowd: Some(Self {
                behind: odd as i64 - many as i64,
            }),
            storage_speed: None,
            seed,
        }
    }

    /// The odd one's subcompactions, which wait in the queue as one wish each, are overtaken by no more than they may.
    pub fn nobody_starved(&self, world: &World, times: &[Duration], ending: &Ending) {
        /// Wishes of a more urgent job that go before one of the next lower priority are fewer than so many.
        const TURN: i64 = 8;
        /// A subcompaction that takes longer than the mean takes no more than so many times as long.
        const LONGEST: f64 = 2.0;
        let subcompactions: u64 = ending.alone.iter().map(|alone| alone.subcompactions).sum();
        let (odd, alone) = (world.requests.last(), ending.alone.last());
        let (odd, alone) = odd.zip(alone).expect("there is one");
        let last = times.iter().max().expect("there are some");
        // The device is never idle.
        let mean = last.as_secs_f64() / subcompactions as f64;
        // Those that waited before, which each have one wish in the queue, and those that may come later.
        let before_each = match self.behind {
            // A subcompaction that runs.
            ..0 => 1,
            behind => JOBS as i64 + behind * TURN,
        };
        let most = alone.subcompactions as f64 * (1 + before_each) as f64 * LONGEST * mean;
        let ends = times.last().expect("there is one");
        let took = ends.saturating_sub(odd.begins).as_secs_f64();
        let seed = world.seed;
        assert!(took <= most, "seed {seed}: {took} s, not {most}; {self:?}");
    }
}

/// One whose merger decides.
fn profile() -> UnitProfile {
    let stage = |base_cycles| UnitStage {
        base_cycles,
        key_passes: 0.0,
        value_passes: 0.0,
    };
    UnitProfile {
        units: 1,
        clock_hz: 1e6,
        bus_bytes: 8.0,
        decoder: stage(1.0),
        transfer: stage(1.0),
        merger: stage(100.0),
        encoder: stage(1.0),
        link: None,
        memory_bytes: 1 << 30,
        faults: FaultRates::default(),
        fault_seed: 0,
    }
}
