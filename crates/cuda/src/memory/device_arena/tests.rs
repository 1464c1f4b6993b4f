use rockmill_core::ErrorKind;

use super::*;
use crate::driver::faults::Faults;
use crate::driver::{Target, test_target};

fn device_arena(max_bytes: u64) -> Arc<DeviceArena> {
    let device = Device::open(test_target()).expect("the device opens");
    DeviceArena::new(&device, Some(max_bytes)).expect("a budget")
}

fn take(device_arena: &Arc<DeviceArena>, bytes: u64) -> Allocation {
    let taken = device_arena.take(bytes, &CancelToken::new());
    taken.expect("there is room")
}

fn waits(device_arena: &Arc<DeviceArena>, bytes: u64) -> bool {
    let state = &mut device_arena.state.lock();
    matches!(
        device_arena.place(state, MemoryUser::Tasks, bytes),
        Ok(Placed::Later)
    )
}

#[test]
fn the_device_is_asked_once_for_several_tasks() {
    let device_arena = device_arena(1 << 20);
    for round in 0..5 {
        let allocations: Vec<_> = (0..4).map(|_| take(&device_arena, 10_000)).collect();
        let mut starts: Vec<_> = allocations
            .iter()
            .map(|allocation| allocation.as_ptr().addr())
            .collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 10_000));
        assert_eq!(device_arena.device.allocations(), 1, "round {round}");
    }
}

#[test]
fn no_more_is_taken_than_the_budget_and_what_never_fits_is_refused() {
    let device_arena = device_arena(64 << 10);
    let first = take(&device_arena, 40 << 10);
    assert!(waits(&device_arena, 32 << 10));
    assert!(device_arena.bytes() <= 64 << 10);
    let error = device_arena
        .take_now(MemoryUser::Tasks, 32 << 10)
        .expect_err("others hold it");
    assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
    let refused = device_arena.take(65 << 10, &CancelToken::new());
    let error = refused.expect_err("it never fits");
    assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
    assert!(error.what.contains("may have 65536"), "{error}");
    drop(first);
    take(&device_arena, 64 << 10);
}

#[test]
fn what_others_have_is_named_and_asked_for_again_once_they_may_have_left() {
    let faults = Faults::none();
    let device = Device::open(Target::Faulty).expect("the host");
    let device_arena = DeviceArena::new(&device, Some(256 << 10)).expect("a budget");
    let small = take(&device_arena, 8 << 10);
    faults.limit_memory(40 << 10);
    let large = || device_arena.take(64 << 10, &CancelToken::new());
    for is_asked in [true, false] {
        let error = large().expect_err("others have it");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
        let named = "may have 32768, since the device gives no more";
        assert!(error.what.contains(named), "{error}");
        let cause = error.what.contains("(cannot get 65536 bytes");
        assert_eq!(cause, is_asked, "{error}");
    }
    faults.end();
    drop(small);
    large().expect("they have left");
}

#[test]
fn a_region_that_is_too_small_makes_room_for_a_larger_one_once_it_is_idle() {
    let device_arena = device_arena(64 << 10);
    let small = take(&device_arena, 8 << 10);
    assert!(waits(&device_arena, 48 << 10));
    drop(small);
    let large = take(&device_arena, 48 << 10);
    drop(large);
    let asked = device_arena.device.allocations();
    for _ in 0..10 {
        take(&device_arena, 8 << 10);
        take(&device_arena, 48 << 10);
    }
    assert_eq!(device_arena.device.allocations(), asked);
}

#[test]
fn who_waits_is_served_in_order_and_small_wishes_do_not_pass_by_large_ones() {
    let device_arena = device_arena(64 << 10);
    let held = take(&device_arena, 32 << 10);
    let order = Lock::new(Vec::new());
    let queue_of = |len| {
        while device_arena.state.lock().waiting.len() != len {
            std::thread::yield_now();
        }
    };
    let wait_for = |bytes| {
        let allocation = take(&device_arena, bytes);
        order.lock().push(bytes);
        drop(allocation);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| wait_for(64 << 10));
        queue_of(1);
        scope.spawn(|| wait_for(1 << 10));
        queue_of(2);
        drop(held);
    });
    assert_eq!(*order.lock(), [64 << 10, 1 << 10]);
}

/// A device with 1 MiB, which it reports like a GPU.
fn small_device(faults: &Faults) -> (Device, Arc<DeviceArena>) {
    faults.simulate_memory(1 << 20);
    let device = Device::open(Target::Faulty).expect("the host");
    let device_arena = DeviceArena::new(&device, None).expect("a budget");
    (device, device_arena)
}

#[test]
fn a_view_gets_what_tasks_hold_once_they_have_ended_and_tasks_keep_an_eighth() {
    let faults = Faults::none();
    let (device, device_arena) = small_device(&faults);
    assert_eq!(device_arena.max_bytes(), (1 << 20) / 5 * 4);
    let held = take(&device_arena, 150 << 10);
    assert_eq!(device_arena.bytes(), 600 << 10, "for the next ones");
    let cancel = CancelToken::new();
    let reserve_all = || device.shares().reserve(&device, 1 << 20, 1, &cancel);
    let reservation = std::thread::scope(|scope| {
        let waiting = scope.spawn(reserve_all);
        while device.shares().excess_bytes(&device) == Ok(0) {
            std::thread::yield_now();
        }
        assert!(
            waits(&device_arena, 150 << 10),
            "the region is to become idle"
        );
        drop(held);
        waiting
            .join()
            .expect("no panic")
            .expect("the task has ended")
    });
    assert_eq!(device_arena.bytes(), 0);
    let get = |bytes| DeviceMemory::of(&device, MemoryUser::Views, Some(&reservation), bytes);
    let table = get((1 << 20) / 8 * 7).expect("it is reserved");
    drop(take(&device_arena, 100 << 10));
    device_arena
        .take(200 << 10, &cancel)
        .expect_err("the view has it");
    drop((table, reservation));
    drop(take(&device_arena, 200 << 10));
    assert!(faults.peak_bytes() <= 1 << 20);
}

#[test]
fn a_limit_of_tasks_does_not_hold_for_loads_of_views_also_if_these_take_more() {
    let faults = Faults::none();
    let (_, device_arena) = small_device(&faults);
    device_arena.limit(Some(64 << 10));
    let cancel = CancelToken::new();
    let take = |user| device_arena.take_for(user, 100 << 10, &cancel);
    take(MemoryUser::Tasks).expect_err("it is above the limit");
    let first = take(MemoryUser::Views).expect("there is memory");
    let more = |user| device_arena.take_now(user, 350 << 10);
    more(MemoryUser::Tasks).expect_err("it is above the limit");
    drop(more(MemoryUser::Views).expect("there is memory"));
    drop(first);
    device_arena.limit(None);
    drop(take(MemoryUser::Tasks).expect("the limit has ended"));
}

#[test]
fn loads_reserve_one_after_another_and_each_takes_what_it_has_reserved() {
    let faults = Faults::none();
    let (device, _reserve) = small_device(&faults);
    let cancel = CancelToken::new();
    let device_arena = |bytes| device.shares().reserve(&device, bytes, 1, &cancel);
    let first = device_arena(500 << 10).expect("it is free");
    let second = device_arena(300 << 10).expect("it is free");
    let get = |of, bytes| DeviceMemory::of(&device, MemoryUser::Views, Some(of), bytes);
    get(&second, 600 << 10).expect_err("500 KiB are reserved for another");
    let of_first = get(&first, 500 << 10).expect("it is reserved");
    std::thread::scope(|scope| {
        let third = scope.spawn(|| device_arena(300 << 10));
        // It takes more than the rest, until the second one ends.
        drop(second);
        third
            .join()
            .expect("no panic")
            .expect("the second has ended");
    });
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let refused = device.shares().reserve(&device, 1, 1, &cancelled);
    assert_eq!(refused.expect_err("cancelled").kind, ErrorKind::Cancelled);
    drop((of_first, first));
    assert_eq!(device.shares().held_bytes(MemoryUser::Views), 0);
}

#[test]
fn waiting_ends_when_cancelled() {
    let device_arena = device_arena(64 << 10);
    let _held = take(&device_arena, 64 << 10);
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| device_arena.take(1, &cancel).map(drop));
        while device_arena.state.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        cancel.cancel();
        let error = waiting.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.kind, ErrorKind::Cancelled);
    });
    assert!(device_arena.state.lock().waiting.is_empty());
}
