//! Jobs of several databases that wait for memory: which ones may overtake, and that none waits forever.

use proptest::prelude::*;

use super::tests::{admitted, queue_of, waits};
use super::*;
use rockmill_storage::clock::SystemClock;

/// A job of a database with that estimated memory.
fn other(database: u64, expected_bytes: u64) -> Entry {
    Entry {
        database: Some(database),
        expected_bytes,
    }
}

#[test]
fn a_database_whose_files_take_their_time_holds_up_no_other() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let cancel = CancelToken::new();
    let enter = |entry| budget.enter(entry, Priority::Normal, &cancel);
    let stalled = enter(other(2, 30)).expect("its turn");
    stalled.hold(10).expect("there is as much");
    let job = enter(other(3, 40)).expect("it has memory of its own");
    job.admit(30, &cancel).expect("it fits");
    assert!(
        waits(|cancel| budget.enter(other(4, 50), Priority::Normal, cancel)),
        "the stalled one is going to hold 30"
    );
    drop(stalled);
    enter(other(4, 50)).expect("it fits");
}

#[test]
fn a_small_job_passes_one_that_waits_for_another_to_end_and_does_not_keep_it() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let cancel = CancelToken::new();
    let long = admitted(&budget, 40, 20);
    let enter = |entry| budget.enter(entry, Priority::Normal, &cancel);
    let large = enter(other(2, 20)).expect("there is memory");
    large.hold(20).expect("there is as much");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| large.admit(70, &cancel));
        queue_of(&budget, 1);
        let small = enter(other(3, 5)).expect("90 and 5 fit");
        small.hold(5).expect("there is as much");
        small.admit(5, &cancel).expect("90 and 10 fit");
        assert!(
            waits(|cancel| budget.enter(other(4, 5), Priority::Normal, cancel)),
            "the large one would not fit when the long one has ended"
        );
        drop(long);
        waiting
            .join()
            .expect("no panic")
            .expect("the long one has ended");
        drop(small);
    });
}

#[test]
fn jobs_that_hold_all_there_is_and_wait_for_each_other_run_one_by_one() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let cancel = CancelToken::new();
    let enter = |entry| budget.enter(entry, Priority::Normal, &cancel);
    // Both hold more than estimated.
    let jobs = [2, 3].map(|database| enter(other(database, 10)).expect("its turn"));
    jobs.iter().for_each(|job| drop(job.hold(45)));
    let [first, second] = jobs;
    first.admit(20, &cancel).expect("no job runs");
    assert!(waits(|cancel| second.admit(20, cancel)));
    drop(first);
    second.admit(20, &cancel).expect("the first has ended");
}

/// Memory of the budget.
const ALL: u64 = 100;

/// Bytes that each job holds, bytes of a task, its database and its priority.
fn jobs() -> impl Strategy<Value = Vec<(u64, u64, u64, Priority)>> {
    let priority = prop::sample::select(vec![Priority::High, Priority::Normal, Priority::Low]);
    let job = (0_u64..60, 1_u64..40, 0_u64..3, priority);
    let jobs = prop::collection::vec(job, 1..24);
    // All with the same priority, or with the drawn ones.
    (jobs, any::<bool>()).prop_map(|(jobs, alike)| {
        let priority = |drawn| if alike { Priority::Normal } else { drawn };
        let jobs = jobs.into_iter();
        jobs.map(|(held, task, database, drawn)| (held, task, database, priority(drawn)))
            .collect()
    })
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// It has not requested anything.
    Comes,
    Enters(u64),
    Opens(u64),
    /// Its ticket and its number.
    Waits(u64, u64),
    Runs(u64),
    Ended,
}

proptest! {
    #[test]
    fn all_jobs_end_and_memory_is_what_they_were_promised(jobs in jobs(), draws in any::<u64>()) {
        let mut state = State::new(1, ALL);
        let mut at = vec![At::Comes; jobs.len()];
        let mut draws = draws;
        // Jobs that had requested anything when a job began to wait.
        let mut waits_for: Vec<Option<Vec<usize>>> = vec![None; jobs.len()];
        let alike = jobs.iter().all(|job| job.3 == jobs[0].3);
        loop {
            state.serve();
            for (at, &(held, _, _, _)) in at.iter_mut().zip(&jobs) {
                match *at {
                    At::Enters(ticket) => if let Some(Grant::Entered { job }) = state.take_grant(ticket) {
                        state.hold(job, held);
                        *at = At::Opens(job);
                    },
                    At::Waits(ticket, job) => if state.take_grant(ticket).is_some() {
                        *at = At::Runs(job);
                    },
                    At::Comes | At::Opens(_) | At::Runs(_) | At::Ended => {}
                }
            }
            // The next job may always enter, whatever its indexes take, and one job may always run.
            let most = |of: fn(&(u64, u64, u64, Priority)) -> u64| jobs.iter().map(of).max().unwrap_or(0);
            let beyond = most(|job| job.0) + most(|job| job.1);
            prop_assert!(state.used_bytes() <= ALL + beyond, "{at:?}");
            let opening = |database| {
                let of = at.iter().zip(&jobs);
                of.filter(|(at, job)| matches!(at, At::Opens(_)) && job.2 == database).count()
            };
            prop_assert!((0..3).all(|database| opening(database) <= 1), "{at:?}");
            let of_kind = |is: fn(&At) -> bool| (0..at.len()).filter(|&i| is(&at[i])).collect::<Vec<_>>();
            for (i, waits_for) in waits_for.iter_mut().enumerate() {
                match (at[i], &waits_for) {
                    (At::Waits(..), None) => {
                        let mut before = of_kind(|at| !matches!(at, At::Comes | At::Ended));
                        before.retain(|&other| other != i);
                        *waits_for = Some(before);
                    }
                    (At::Waits(..), Some(_)) => {}
                    _ => *waits_for = None,
                }
            }
            let mut waiting = of_kind(|at| matches!(at, At::Waits(..)));
            waiting.sort_by_key(|&i| at[i]);
            if let Some(&first) = waiting.first().filter(|_| alike) {
                let mut asked_before = waits_for[first].iter().flatten();
                prop_assert!(
                    asked_before.any(|&i| at[i] != At::Ended),
                    "{first} waits for those that came later: {at:?}"
                );
            }
            let mut may_go_on = of_kind(|at| matches!(at, At::Opens(_) | At::Runs(_)));
            let waits = of_kind(|at| matches!(at, At::Enters(_) | At::Waits(..)));
            prop_assert!(waits.is_empty() || !may_go_on.is_empty(), "all wait for each other: {at:?}");
            may_go_on.extend(of_kind(|at| *at == At::Comes).first());
            if may_go_on.is_empty() {
                break;
            }
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let next = may_go_on[(draws >> 33) as usize % may_go_on.len()];
            let (held, task_bytes, database, priority) = jobs[next];
            at[next] = match at[next] {
                At::Comes => At::Enters(state.queue(Request::Enter(other(database, held)), priority)),
                At::Opens(job) => {
                    state.set_task_bytes(job, task_bytes);
                    At::Waits(state.queue(Request::Admit(job), priority), job)
                }
                At::Runs(job) => {
                    state.remove(job);
                    At::Ended
                }
                other => other,
            };
        }
        prop_assert_eq!(state.used_bytes(), 0);
    }
}
