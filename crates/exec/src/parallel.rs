//! One function over many items, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rockmill_core::{Error, Result, thread_cpu};

use rockmill_storage::clock::{Clock, Crew, SystemClock};

/// `f` of every item, in the items' order, and the processor time that other threads than the caller's
/// took. Where the system has no more threads, the caller does what is left.
///
/// # Errors
/// That of the first item in order that has one, among those that were reached.
pub fn map<'a, T: Sync, U: Send>(
    items: &'a [T],
    threads: usize,
    f: impl Fn(&'a T) -> Result<U> + Sync,
) -> Result<(Vec<U>, Duration)> {
    map_in(&SystemClock::shared(), items, threads, f)
}

/// The same where `f` may wait in the time of `clock`.
///
/// # Errors
/// Those of [`map`].
pub fn map_in<'a, T: Sync, U: Send>(
    clock: &Arc<dyn Clock>,
    items: &'a [T],
    threads: usize,
    f: impl Fn(&'a T) -> Result<U> + Sync,
) -> Result<(Vec<U>, Duration)> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<U>)>> = Mutex::default();
    let elsewhere = Mutex::new(Duration::ZERO);
    let work = || {
        while let Some((i, item)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).map(|item| (i, item))
        } {
            let result = f(item);
            if result.is_err() {
                // What follows is not looked at.
                next.store(items.len(), Ordering::Relaxed);
            }
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((i, result));
        }
    };
    let work_elsewhere = || {
        work();
        let mut sum = elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        *sum += thread_cpu();
    };
    let crew = Crew::new(clock);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            let member = crew.enlist();
            let builder = std::thread::Builder::new().name("rockmill".to_owned());
            let spawned = builder.spawn_scoped(scope, || member.run(work_elsewhere));
            if spawned.is_err() {
                break;
            }
        }
        work();
        crew.wait();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(i, _)| *i);
    let results = done.into_iter().map(|(_, result)| result);
    let results = results.collect::<Result<Vec<_>>>()?;
    if results.len() != items.len() {
        return Err(Error::internal("an item was left out"));
    }
    let elsewhere = elsewhere.into_inner();
    Ok((results, elsewhere.unwrap_or_else(PoisonError::into_inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            let (squares, _) = map(&items, threads, |&i| Ok(i * i)).expect("no errors");
            assert_eq!(squares, items.iter().map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_it() {
        let items: Vec<u64> = (0..100).collect();
        let fail = |&i: &u64| match i {
            7 => Err(Error::internal("seven")),
            _ => Ok(i),
        };
        assert_eq!(map(&items, 1, fail).expect_err("seven").what, "seven");
        assert_eq!(map(&items, 4, fail).expect_err("seven").what, "seven");
    }
}
