use rockmill_core::{DeclineReason, ErrorKind};

use super::share::TaskGrant;
use super::state::JobId;
use super::*;
use rockmill_storage::clock::SystemClock;

pub(super) fn admitted(budget: &Arc<Budget>, held_bytes: u64, task_bytes: u64) -> JobShare {
    admitted_as(Priority::Normal, budget, held_bytes, task_bytes)
}

fn admitted_as(
    priority: Priority,
    budget: &Arc<Budget>,
    held_bytes: u64,
    task_bytes: u64,
) -> JobShare {
    let cancel = CancelToken::new();
    let job = budget.enter(SOME, priority, &cancel).expect("its turn");
    job.hold(held_bytes).expect("there is as much");
    job.admit(task_bytes, &cancel).expect("it fits");
    job.plan(MANY);
    job
}

const MANY: Work = Work {
    tasks: 1000,
    task_bytes: 1,
};

/// Jobs of one database that hold no more than they announced.
pub(super) const SOME: Entry = Entry {
    database: Some(1),
    expected_bytes: 0,
};

const CPU: Candidate = Candidate {
    device: HOST,
    seconds: 1.0,
};

pub(super) fn task(job: &JobShare) -> TaskGrant {
    let grant = job
        .grant(&[CPU], &CancelToken::new())
        .expect("not cancelled");
    grant.expect("the job goes on")
}

/// Whether a request has to wait in the current state. It is withdrawn then.
pub(super) fn waits<T>(request: impl FnOnce(&CancelToken) -> Result<T>) -> bool {
    let cancel = CancelToken::new();
    cancel.cancel();
    request(&cancel).is_err()
}

/// Waits until that many requests wait.
pub(super) fn queue_of(budget: &Arc<Budget>, wishes: usize) {
    while budget.state.lock().waiting() != wishes {
        std::thread::yield_now();
    }
}

#[test]
fn memory_is_given_back() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let job = admitted(&budget, 10, 40);
    assert_eq!(job.tasks_in_memory(), 2);
    let (first, second) = (task(&job), task(&job));
    assert_eq!(budget.state.lock().used_bytes(), 90);
    assert!(
        waits(|cancel| job.grant(&[CPU], cancel)),
        "a third does not fit"
    );
    drop(second);
    drop(first);
    let used = budget.state.lock().used_bytes();
    assert_eq!(used, 50, "one task stays the job's");
    drop(job);
    assert_eq!(budget.state.lock().used_bytes(), 0);
}

#[test]
fn indexes_of_all_jobs_count() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let first = admitted(&budget, 30, 20);
    let cancel = CancelToken::new();
    let second = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("its turn");
    second.hold(40).expect("there is as much");
    assert!(waits(|cancel| second.admit(20, cancel)));
    second.admit(10, &cancel).expect("it fits");
    drop((first, second));

    let greedy = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("its turn");
    greedy.hold(60).expect("there is as much");
    let error = greedy.hold(60).expect_err("there is less");
    let reason = DeclineReason::MemoryBudget;
    assert_eq!(error.kind, ErrorKind::Declined(reason));
}

#[test]
fn one_job_of_a_database_opens_its_inputs_at_a_time() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let cancel = CancelToken::new();
    let first = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("its turn");
    assert!(waits(|cancel| budget.enter(SOME, Priority::Normal, cancel)));
    first.admit(10, &cancel).expect("it fits");
    let second = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("the first is done opening");
    assert!(waits(|cancel| budget.enter(SOME, Priority::Normal, cancel)));
    drop(second);
    budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("the second has gone");
}

#[test]
fn a_job_goes_on_whatever_others_hold() {
    let budget = Arc::new(Budget::new(8, 100, SystemClock::shared()));
    let large = admitted(&budget, 0, 40);
    let small = admitted(&budget, 0, 10);
    let running = (task(&large), task(&large));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(task(&large)));
        queue_of(&budget, 1);
        let own = task(&small);
        assert!(
            waits(|cancel| small.grant(&[CPU], cancel)),
            "what is free is kept for the third of the large ones"
        );
        drop(own);
        drop(running);
        waiting.join().expect("no panic");
    });
}

#[test]
fn small_tasks_do_not_keep_a_large_one_waiting() {
    let budget = Arc::new(Budget::new(8, 100, SystemClock::shared()));
    let small = admitted(&budget, 0, 20);
    let running = [task(&small), task(&small), task(&small)];
    let cancel = CancelToken::new();
    let large = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("its turn");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| large.admit(70, &cancel));
        queue_of(&budget, 1);
        assert!(
            waits(|cancel| small.grant(&[CPU], cancel)),
            "what is free is kept for the large one"
        );
        drop(running);
        waiting.join().expect("no panic").expect("admitted");
    });
}

#[test]
fn nothing_is_kept_for_a_job_that_must_wait_for_another_to_end() {
    let budget = Arc::new(Budget::new(8, 100, SystemClock::shared()));
    let first = admitted(&budget, 0, 20);
    let own = task(&first);
    let cancel = CancelToken::new();
    let second = budget
        .enter(SOME, Priority::Normal, &cancel)
        .expect("its turn");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.admit(90, &cancel));
        queue_of(&budget, 1);
        drop(task(&first));
        drop(own);
        drop(first);
        waiting.join().expect("no panic").expect("admitted");
    });
}

#[test]
fn slots_go_round() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let (a, b) = (admitted(&budget, 0, 10), admitted(&budget, 0, 10));
    let order = Lock::new(Vec::new());
    let running = task(&a);
    let take = |job: &JobShare, name| {
        let grant = task(job);
        order.lock().push(name);
        drop(grant);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| take(&a, "a"));
        queue_of(&budget, 1);
        scope.spawn(|| take(&b, "b"));
        queue_of(&budget, 2);
        scope.spawn(|| take(&a, "a again"));
        queue_of(&budget, 3);
        drop(running);
    });
    assert_eq!(*order.lock(), ["a", "b", "a again"]);
}

#[test]
fn who_waits_for_a_task_of_an_ended_job_goes() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    let _running = task(&job);
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| job.grant(&[CPU], &cancel).map(|grant| grant.is_some()));
        queue_of(&budget, 1);
        job.end();
        assert_eq!(waiting.join().expect("no panic"), Ok(false));
    });
}

#[test]
fn a_budget_grows_and_shrinks_while_tasks_run() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 40);
    let first = task(&job);
    assert!(
        waits(|cancel| job.grant(&[CPU], cancel)),
        "there is one slot"
    );
    budget.resize(3, 100);
    let second = task(&job);
    assert!(
        waits(|cancel| job.grant(&[CPU], cancel)),
        "there is no memory"
    );
    budget.resize(3, 120);
    let third = task(&job);
    budget.resize(1, 10);
    drop((second, third));
    assert!(
        waits(|cancel| job.grant(&[CPU], cancel)),
        "there is one slot again"
    );
    drop(first);
    drop(task(&job));
    assert!(
        waits(|cancel| budget
            .enter(SOME, Priority::Normal, cancel)?
            .admit(5, cancel)),
        "what is held is more than there is"
    );
    drop(job);
    admitted(&budget, 5, 20);
}

#[test]
fn a_job_that_holds_more_than_there_is_by_now_goes_on() {
    let budget = Arc::new(Budget::new(2, 100, SystemClock::shared()));
    let job = admitted(&budget, 60, 20);
    budget.resize(2, 10);
    assert_eq!(job.held_bytes(), 60);
    let _running = task(&job);
    assert!(waits(|cancel| job.grant(&[CPU], cancel)), "one at a time");
}

#[test]
fn calls_abandoned_count_what_their_job_holds_once() {
    let budget = Arc::new(Budget::new(4, 200, SystemClock::shared()));
    let job = admitted(&budget, 30, 40);
    let grants = [(); 2].map(|()| task(&job));
    assert_eq!(budget.taken_bytes(), 30 + 40 + 40);
    let [first, second] = grants.map(|grant| grant.abandon(40));
    assert_eq!(
        budget.taken_bytes(),
        30 + 40 + 2 * 40,
        "one place is the job's"
    );
    drop(job);
    assert_eq!(budget.taken_bytes(), 30 + 2 * 40);
    drop(first);
    assert_eq!(budget.taken_bytes(), 30 + 40);
    drop(second);
    assert_eq!(budget.taken_bytes(), 0);
    let job = admitted(&budget, 30, 40);
    drop(task(&job).abandon(40));
    drop(job);
    assert_eq!(budget.taken_bytes(), 0, "the call came back before");
}

#[test]
fn jobs_go_one_at_a_time_where_calls_abandoned_hold_all() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 40);
    let calls = [(); 3].map(|()| task(&job).abandon(40));
    drop(job);
    assert_eq!((budget.bytes(), budget.all_bytes()), (0, 100));
    let next = admitted(&budget, 60, 40);
    let own = task(&next);
    assert!(waits(|cancel| next.grant(&[CPU], cancel)));
    assert!(waits(|cancel| budget
        .enter(SOME, Priority::Normal, cancel)?
        .admit(5, cancel)));
    drop((own, next));
    let greedy = budget.enter(SOME, Priority::Normal, &CancelToken::new());
    let error = greedy.expect("its turn").hold(101);
    let reason = DeclineReason::MemoryBudget;
    assert_eq!(error.expect_err("never").kind, ErrorKind::Declined(reason));
    drop(calls);
    assert_eq!(budget.bytes(), 100);
}

#[test]
fn waiting_ends_when_cancelled() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    let _running = task(&job);
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| job.grant(&[CPU], &cancel).map(drop));
        queue_of(&budget, 1);
        cancel.cancel();
        let error = waiting.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.kind, ErrorKind::Cancelled);
    });
    assert_eq!(budget.state.lock().waiting(), 0);
}

#[test]
fn each_device_has_room_for_as_many_tasks() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    let gpu = Candidate { device: 1, ..CPU };
    let take = || job.grant(&[CPU, gpu], &CancelToken::new());
    let take = || take().expect("not cancelled").expect("the job goes on");
    let both = [take(), take()];
    assert_eq!(
        both.each_ref().map(|grant| grant.placement().device),
        [0, 1]
    );
    assert!(waits(|cancel| job.grant(&[CPU, gpu], cancel)));
    let [first, second] = both;
    second.put_back();
    assert_eq!(take().placement().device, 1);
    drop(first);
}

#[test]
fn what_runs_on_a_device_and_what_may_go_there_is_queued() {
    let budget = Arc::new(Budget::new(2, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    let work = Work {
        tasks: 5,
        task_bytes: 100,
    };
    job.plan(work);
    assert_eq!(
        budget.queued_bytes(HOST),
        0,
        "it has not asked for a device"
    );
    let running = [task(&job), task(&job)];
    assert_eq!(
        (budget.queued_bytes(HOST), budget.queued_bytes(1)),
        (500, 0)
    );
    drop(running);
    assert_eq!(budget.queued_bytes(HOST), 300);
    drop(job);
    assert_eq!(budget.queued_bytes(HOST), 0);
}

#[test]
fn a_job_has_as_many_tasks_as_it_said() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    job.plan(Work { tasks: 1, ..MANY });
    let cancel = CancelToken::new();
    task(&job).put_back();
    drop(task(&job));
    assert!(job.grant(&[CPU], &cancel).expect("not cancelled").is_none());
}

#[test]
fn a_task_that_waits_for_a_late_device_goes_to_another() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let job = admitted(&budget, 0, 10);
    job.plan(Work { tasks: 2, ..MANY });
    // The GPU is so fast that the CPU would not be in time.
    let [cpu, gpu] =
        [(HOST, 0.2), (1, 0.01)].map(|(device, seconds)| Candidate { device, seconds });
    let cancel = CancelToken::new();
    let take = || job.grant(&[cpu, gpu], &cancel).expect("not cancelled");
    let first = take().expect("there are two");
    let second = take().expect("there is one");
    assert_eq!(
        (first.placement().device, second.placement().device),
        (1, HOST)
    );
    assert!(second.placement().moved && !first.placement().moved);
}

#[test]
fn urgent_jobs_go_first_and_nobody_starves() {
    let budget = Arc::new(Budget::new(1, 100, SystemClock::shared()));
    let urgent = admitted_as(Priority::High, &budget, 0, 10);
    let idle = admitted_as(Priority::Low, &budget, 0, 10);
    let order = Lock::new(Vec::new());
    let running = task(&idle);
    let take = |job: &JobShare, name| {
        let grant = task(job);
        order.lock().push(name);
        drop(grant);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| take(&idle, "idle"));
        queue_of(&budget, 1);
        for waiting in 2..=4 {
            scope.spawn(|| take(&urgent, "urgent"));
            queue_of(&budget, waiting);
        }
        drop(running);
    });
    let order = std::mem::take(&mut *order.lock());
    assert_eq!(order, ["urgent", "urgent", "urgent", "idle"]);
}

/// Returns a job with many tasks that has opened its inputs and requests the memory of one task.
fn asks_for_memory(state: &mut State, priority: Priority, task_bytes: u64) -> JobId {
    let ticket = state.queue(Request::Enter(SOME), priority);
    state.serve();
    let Some(Grant::Entered { job }) = state.take_grant(ticket) else {
        panic!("nobody else opens inputs");
    };
    state.set_task_bytes(job, task_bytes);
    state.queue(Request::Admit(job), priority);
    state.set_work(job, MANY);
    state.set_candidates(job, &[CPU]);
    state.serve();
    job
}

#[test]
fn an_urgent_job_that_always_wants_more_holds_up_no_other_for_ever() {
    const MORE_THAN_ITS_TURN: usize = 256;
    let mut state = State::new(1, 100);
    let mut job = |priority| asks_for_memory(&mut state, priority, 10);
    let (urgent, idle) = (job(Priority::High), job(Priority::Low));
    let mut next = state.queue(Request::Task(urgent), Priority::High);
    state.serve();
    let waiting = state.queue(Request::Task(idle), Priority::Low);
    let served = (0..MORE_THAN_ITS_TURN).find(|_| {
        let Some(Grant::Task(running)) = state.take_grant(next) else {
            panic!("it is its turn");
        };
        next = state.queue(Request::Task(urgent), Priority::High);
        state.give_back(urgent, &running, true);
        state.serve();
        matches!(state.take_grant(waiting), Some(Grant::Task(_)))
    });
    assert!(served > Some(1), "{served:?}");
}

#[test]
fn a_job_that_waits_for_memory_gives_nobody_more_than_its_turn() {
    const SERVED: usize = 300;
    let mut state = State::new(1, 100);
    let mut job = |priority, task_bytes| asks_for_memory(&mut state, priority, task_bytes);
    let (usual, idle) = (job(Priority::Normal, 10), job(Priority::Low, 10));
    let waits = job(Priority::Normal, 90);
    assert_eq!(state.waiting(), 1, "{waits} has no room beside the others");
    let mut next = state.queue(Request::Task(usual), Priority::Normal);
    state.serve();
    for _ in 0..SERVED {
        let Some(Grant::Task(running)) = state.take_grant(next) else {
            panic!("it is alone");
        };
        next = state.queue(Request::Task(usual), Priority::Normal);
        state.give_back(usual, &running, true);
        state.serve();
    }
    let late = state.queue(Request::Task(idle), Priority::Low);
    for _ in 0..3 {
        let Some(Grant::Task(running)) = state.take_grant(next) else {
            panic!("it is more urgent");
        };
        next = state.queue(Request::Task(usual), Priority::Normal);
        state.give_back(usual, &running, true);
        state.serve();
        assert!(state.take_grant(late).is_none());
    }
}

#[test]
fn what_is_kept_waits_for_tasks_and_is_missing_afterwards() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let never = CancelToken::new();
    let job = admitted(&budget, 0, 30);
    let (first, second) = (task(&job), task(&job));
    assert!(waits(|cancel| budget.reserve(45, cancel)));
    drop(second);
    let kept = budget.reserve(45, &never).expect("30 are in use");
    assert_eq!((budget.bytes(), budget.taken_bytes()), (55, 75));
    assert!(waits(|cancel| job.grant(&[CPU], cancel)));
    drop(kept);
    assert_eq!((budget.bytes(), budget.taken_bytes()), (100, 30));
    drop(task(&job));
    drop(first);
}

#[test]
fn half_of_the_budget_is_kept_at_most() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let never = CancelToken::new();
    let kept = budget.reserve(40, &never).expect("it is free");
    let refused = budget.reserve(11, &never).expect_err("more than half");
    assert_eq!(
        refused.kind,
        ErrorKind::Declined(DeclineReason::MemoryBudget)
    );
    drop(budget.reserve(10, &never).expect("half"));
    budget.resize(4, 60);
    assert_eq!(budget.room_for_reservations(), 0);
    drop(kept);
    assert_eq!(budget.room_for_reservations(), 30);
}

#[test]
fn a_job_that_does_not_fit_beside_what_is_kept_runs_alone_while_others_come() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let never = CancelToken::new();
    let kept = budget.reserve(50, &never).expect("it is free");
    let small = admitted(&budget, 0, 10);
    let enter = || budget.enter(SOME, Priority::Normal, &never);
    let large = enter().expect("nobody opens inputs");
    large.hold(20).expect("there is as much");
    std::thread::scope(|threads| {
        let admission = threads.spawn(|| large.admit(60, &CancelToken::new()));
        queue_of(&budget, 1);
        assert!(waits(|cancel| budget.enter(
            OPENS_NOTHING,
            Priority::Normal,
            cancel
        )));
        drop(small);
        admission.join().expect("no panic").expect("it is alone");
    });
    assert_eq!(budget.taken_bytes(), 50 + 20 + 60);
    drop(kept);
}

const OPENS_NOTHING: Entry = Entry {
    database: None,
    expected_bytes: 0,
};

#[test]
fn jobs_that_open_nothing_enter_together() {
    let budget = Arc::new(Budget::new(4, 100, SystemClock::shared()));
    let never = CancelToken::new();
    let enter = |entry| {
        budget
            .enter(entry, Priority::Normal, &never)
            .expect("its turn")
    };
    let jobs = [SOME, OPENS_NOTHING, OPENS_NOTHING].map(enter);
    assert!(waits(|cancel| budget.enter(SOME, Priority::Normal, cancel)));
    drop(jobs);
}
