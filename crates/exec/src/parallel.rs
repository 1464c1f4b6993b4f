//! Applies one function to many items on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rockmill_core::{Error, Lock, Result, thread_cpu};

use crate::dispatch::carried;
use rockmill_storage::clock::{Clock, SystemClock, ThreadGroup};

/// Applies `f` to every item. Returns the results in the items' order, and the CPU time of threads other than the
/// caller's. If the system refuses to create threads, the caller does the rest.
///
/// # Errors
/// The error of the first item in order that failed, among those that were processed.
pub fn map<'a, T: Sync, U: Send>(
    items: &'a [T],
    threads: usize,
    f: impl Fn(&'a T) -> Result<U> + Sync,
) -> Result<(Vec<U>, Duration)> {
    map_in(&SystemClock::shared(), items, threads, f)
}

/// Does the same as [`map`], in the time of `clock`, so that `f` may wait.
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
    let done: Lock<Vec<(usize, Result<U>)>> = Lock::default();
    let elsewhere = Lock::new(Duration::ZERO);
    let work = || {
        while let Some((i, item)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).map(|item| (i, item))
        } {
            let result = f(item);
            if result.is_err() {
                // Skips the items after it.
                next.store(items.len(), Ordering::Relaxed);
            }
            done.lock().push((i, result));
        }
    };
    let work_elsewhere = || {
        work();
        *elsewhere.lock() += thread_cpu();
    };
    let group = ThreadGroup::new(clock);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            let member = group.add();
            let builder = std::thread::Builder::new().name("rockmill".to_owned());
            let spawned = builder.spawn_scoped(scope, carried(|| member.run(work_elsewhere)));
            if spawned.is_err() {
                break;
            }
        }
        work();
        group.wait();
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(i, _)| *i);
    let results = done.into_iter().map(|(_, result)| result);
    let results = results.collect::<Result<Vec<_>>>()?;
    if results.len() != items.len() {
        return Err(Error::internal("an item was left out"));
    }
    Ok((results, elsewhere.into_inner()))
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
