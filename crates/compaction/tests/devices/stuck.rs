//! Subcompactions from which a device does not return.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_compaction::Engine;

use crate::CASES;
use crate::machine::{KERNELS, Left, Machine, Stuck, run, run_again, run_on, run_stuck, start};
use rockmill_testkit::storage_model::database::Database;
use rockmill_testkit::storage_model::storage::SimStorage;

#[test]
fn a_subcompaction_that_does_not_come_back_is_abandoned() {
    let mut abandoned = 0;
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, KERNELS, None, 0);
        if expected.device == "cpu" || expected.files.is_empty() {
            continue;
        }
        let stuck = Stuck::default();
        let left = run_stuck(&database, kernels(2, 1), Some(Arc::clone(&stuck)));
        assert!(left.files == expected.files, "seed {seed}");
        let why = left.refused.expect("it is stuck");
        assert!(why.contains("did not return"), "{why}");
        assert_eq!(left.stats.subcompactions_redone_by_cpu, 1, "seed {seed}");
        assert_eq!(left.stats.device_quarantined, 1, "seed {seed}");
        *stuck.0.lock().expect("no panic") = true;
        stuck.1.notify_all();
        // The call returns to files that are not used any more, and releases everything.
        while Arc::strong_count(&stuck) > 1 {
            std::thread::yield_now();
        }
        abandoned += 1;
    }
    assert!(abandoned > 0);
}

/// The kernels with that many threads; the first `damaged` files are damaged.
fn kernels(threads: usize, damaged: u32) -> Machine {
    Machine {
        devices: KERNELS.into(),
        threads,
        memory_bytes: None,
        damaged,
    }
}

/// Returns a database whose job has at least that many subcompactions on the kernels, and its undisturbed result. They make
/// as many files, so that the first files are those of the first subcompactions.
fn with_subcompactions(slots: impl Fn(&Left) -> u64) -> (Database, Left, u64) {
    (1..)
        .map(|seed| Database::draw(&mut SmallRng::seed_from_u64(seed)))
        .find_map(|database| {
            let left = run_on(&database, kernels(1, 0));
            let slots = slots(&left);
            let fills = left.device != "cpu" && left.subcompactions >= slots;
            let fills = fills && left.files.len() as u64 == left.subcompactions;
            fills.then_some((database, left, slots))
        })
        .expect("it goes on until there is one")
}

/// Creates an engine whose first subcompactions do not return, with memory for these and for the job's indexes.
fn start_stuck(
    (database, expected, slots): &(Database, Left, u64),
    stuck: &Stuck,
) -> (Engine, SimStorage, u64) {
    let machine = kernels(*slots as usize, *slots as u32);
    let (engine, storage) = start(database, machine, Some(Arc::clone(stuck)));
    let budget = slots * expected.stats.subcompactions_peak_held_bytes + (1 << 20);
    let set = engine.change_settings(|settings| settings.memory_budget_bytes = budget);
    set.expect("it makes sense");
    (engine, storage, budget)
}

/// Lets the calls return, and waits until they have.
fn release(stuck: &Stuck, engine: &Engine) {
    *stuck.0.lock().expect("no panic") = true;
    stuck.1.notify_all();
    while engine.memory_taken_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn subcompactions_that_do_not_come_back_leave_the_cpu_room_for_one() {
    const MIN_BUDGET: u64 = 32 << 20;
    // A job whose subcompactions fill the budget.
    let case =
        with_subcompactions(|left| MIN_BUDGET.div_ceil(left.stats.subcompactions_peak_held_bytes));
    let stuck = Stuck::default();
    let (engine, storage, budget) = start_stuck(&case, &stuck);
    let (database, expected, slots) = case;
    let hung = run_again(&database, &engine, &storage);
    assert!(hung.files == expected.files);
    assert_eq!(hung.stats.subcompactions_abandoned, slots);
    let subcompactions_bytes = slots * expected.stats.subcompactions_peak_held_bytes;
    let taken = engine.memory_taken_bytes();
    assert!(
        (subcompactions_bytes..budget).contains(&taken),
        "{taken} of {budget}"
    );
    let left = run_again(&database, &engine, &storage);
    assert!(left.files == expected.files);
    assert_eq!(left.device, "cpu");
    release(&stuck, &engine);
}

#[test]
fn subcompactions_that_do_not_come_back_are_made_again_one_at_a_time_where_memory_is_full() {
    const SUBCOMPACTIONS: u64 = 6;
    let case = with_subcompactions(|_| SUBCOMPACTIONS);
    let stuck = Stuck::default();
    let (engine, storage, budget) = start_stuck(&case, &stuck);
    let (database, expected, _) = case;
    let mut most = 0;
    let hung = std::thread::scope(|scope| {
        let job = scope.spawn(|| run_again(&database, &engine, &storage));
        while !job.is_finished() {
            most = engine.memory_taken_bytes().max(most);
            std::thread::yield_now();
        }
        job.join().expect("no panic")
    });
    assert!(hung.files == expected.files);
    assert!(hung.stats.subcompactions_abandoned > 1);
    let subcompaction_bytes = expected.stats.subcompactions_peak_held_bytes;
    assert!(
        most <= budget + subcompaction_bytes,
        "{most} of {budget}, and {subcompaction_bytes} to make one again"
    );
    release(&stuck, &engine);
}
