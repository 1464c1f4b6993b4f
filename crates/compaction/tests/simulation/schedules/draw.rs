//! Draws the contents of a case.

use std::path::PathBuf;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_compaction::{
    CudaSettings, Device, MIN_MEMORY_BUDGET_BYTES, MutableSettings, Settings, TaskDeadline,
    Verification,
};
use rockmill_cuda::Target;
use rockmill_format::unique_id::SessionId;

use super::crowd::Crowd;
use super::registry;
use super::request::Request;
use super::world::{Change, World};
use crate::database::Database;
use crate::family::{LAST_LEVEL, Shape, merge_operators};

/// Bytes per second of a drive.
const STORAGE_SPEED: f64 = 200e6;

/// Limit of an engine's I/O in bytes per second.
const SLOW_IO: u64 = 2_000_000;

const MIB: u64 = 1 << 20;

impl World {
    pub fn draw(rng: &mut SmallRng, seed: u64) -> Self {
        if rng.random_ratio(1, 50) {
            return Crowd::draw(rng, seed);
        }
        let databases: Vec<_> = (0..rng.random_range(1..=3))
            .map(|number| (PathBuf::from(format!("/db{number}")), draw_database(rng)))
            .collect();
        // Longer than a quarantine, or all at about the same time.
        let last = *[0.2, 0.2, 200.0].choose(rng).expect("there are some");
        let requests = (0..rng.random_range(1..=6)).map(|number| {
            let begins = Duration::from_secs_f64(rng.random_range(0.0..last));
            let until = Duration::from_secs_f64(rng.random_range(0.0..0.3));
            let database = rng.random_range(0..databases.len());
            Request {
                database,
                family: rng.random_range(0..databases[database].1.families.len()),
                in_bottom_pool: rng.random_ratio(1, 3),
                session_id: session_id(seed, number),
                begins,
                cancelled: rng.random_ratio(1, 6).then_some(begins + until),
            }
        });
        let requests = requests.collect();
        let count = *[0, 0, 1, 3].choose(rng).expect("there are some");
        let mut changes: Vec<_> = (0..count)
            .map(|_| Change {
                at: Duration::from_secs_f64(rng.random_range(0.0..last + 0.2)),
                threads: rng.random_range(1..=3),
                memory_budget_bytes: draw_budget(rng),
            })
            .collect();
        changes.sort_by_key(|change| change.at);
        let levels = [
            Verification::Default,
            Verification::Default,
            Verification::SAMPLED,
        ];
        let (device, profiles) = registry::draw(rng, seed);
        // The kernels' subcompactions wait for each other outside virtual time, so none of them may wait in it.
        let has_kernels = device.contains(Device::Kernels(Target::Host));
        // Less and more than the time that a closing database waits for a call.
        let task_deadline = *[1, 1, 10].choose(rng).expect("there are some");
        let limit = *[0, 0, SLOW_IO].choose(rng).expect("there are some");
        let settings = Settings {
            mutable: MutableSettings {
                threads: rng.random_range(1..=3),
                sync_threads: Some(rng.random_range(0..=2)),
                io_bytes_per_second: if has_kernels { 0 } else { limit },
                memory_budget_bytes: draw_budget(rng),
                read_ahead_bytes: *[64 << 10, 512 << 10].choose(rng).expect("there are some"),
                verification: *levels.choose(rng).expect("there are some"),
                ..MutableSettings::default()
            },
            device,
            cuda: CudaSettings {
                pinned_bytes: Some(0),
                ..CudaSettings::default()
            },
            task_deadline: TaskDeadline::at_least(Duration::from_secs(task_deadline)),
            merge_operators: merge_operators(),
            ..Settings::default()
        };
        Self {
            databases,
            requests,
            changes,
            settings,
            profiles,
            crowd: None,
            storage_speed: (!has_kernels).then_some(STORAGE_SPEED),
            seed,
        }
    }
}

pub fn session_id(seed: u64, number: u64) -> String {
    SessionId {
        upper: seed,
        lower: number + 1,
    }
    .encode()
}

/// Draws memory for all subcompactions, or so little that some jobs cannot be done.
fn draw_budget(rng: &mut SmallRng) -> u64 {
    const MAX_TIGHT: u64 = 48 * MIB;
    match rng.random() {
        true => MutableSettings::default().memory_budget_bytes,
        false => rng.random_range(MIN_MEMORY_BUDGET_BYTES..MAX_TIGHT),
    }
}

/// Draws one to three column families. The block size of their output determines the memory of a subcompaction: almost
/// nothing, a part of a tight budget, or nearly all of it.
fn draw_database(rng: &mut SmallRng) -> Database {
    let shapes: Vec<_> = (0..rng.random_range(1..=3))
        .map(|_| Shape {
            start_level: match rng.random() {
                true => 0,
                false => rng.random_range(1..LAST_LEVEL),
            },
            block_bytes: match rng.random_range(0..4) {
                0 => rng.random_range(MIB..4 * MIB),
                1 => rng.random_range(4 * MIB..10 * MIB),
                _ => Shape::default().block_bytes,
            },
            ..Shape::default()
        })
        .collect();
    Database::with_families(rng, &shapes)
}
