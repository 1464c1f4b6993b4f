//! Many jobs of one priority and one job of another: their order, and that none waits forever.

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
use crate::family::{Shape, merge_operators};

/// Priorities of jobs, the highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Compaction of level 0.
    High,
    /// Compaction of level 0 in the bottom-priority pool, or of a deeper level outside it.
    Normal,
    /// Compaction of a deeper level in the bottom-priority pool.
    Low,
}

const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

impl Priority {
    pub fn of(world: &World, request: &Request) -> Self {
        let is_deep = world.of(request).1.start_level > 0;
        ALL[usize::from(is_deep) + usize::from(request.in_bottom_pool)]
    }
}

/// A case in which the last request has another priority than all before.
#[derive(Debug)]
pub struct Crowd {
    /// Number of priorities by which it is lower; negative if it is higher.
    behind: i64,
}

/// Number of jobs with the first priority.
const JOBS: u64 = 14;

impl Crowd {
    /// Draws a case with one device that runs one subcompaction at a time and never fails.
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
        // When the other jobs have begun, and most of their work remains.
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
                merge_operators: merge_operators(),
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

    /// Checks that the odd job's subcompactions, which wait in the queue one after another, are overtaken by no more
    /// than allowed.
    pub fn nobody_starved(&self, world: &World, times: &[Duration], ending: &Ending) {
        /// Fewer than this many waiters of a higher priority overtake one of the next lower priority.
        const TURN: i64 = 8;
        /// Maximum time of a subcompaction relative to the mean.
        const LONGEST: f64 = 2.0;
        let subcompactions: u64 = ending.alone.iter().map(|alone| alone.subcompactions).sum();
        let (odd, alone) = (world.requests.last(), ending.alone.last());
        let (odd, alone) = odd.zip(alone).expect("there is one");
        let last = times.iter().max().expect("there are some");
        // The device is never idle.
        let mean = last.as_secs_f64() / subcompactions as f64;
        // The jobs that waited before, each with one place in the queue, and those that may arrive later.
        let before_each = match self.behind {
            // A running subcompaction.
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

/// A profile whose merger is the slowest stage.
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
