//! Running work at a higher niceness than the caller's.

use crate::dispatch::carried;
use rockmill_core::{Error, ErrorKind, Result};
use rustix::process::{getpriority_process, setpriority_process};

/// Largest niceness in Linux (`man 2 setpriority`).
const MAX_NICENESS: i32 = 19;

/// Runs `work` on a new thread whose niceness is `nice` above the caller's, at most 19. Threads that it starts inherit
/// it. The caller's thread keeps its niceness, because an unprivileged process could not lower it again.
///
/// # Errors
/// Storage if the system refuses to create a thread or to change its niceness; the errors of `work`.
pub fn with_niceness<T: Send>(nice: u8, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let span = tracing::Span::current();
    let work = carried(move || {
        lower(nice)?;
        span.in_scope(work)
    });
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("rockmill".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|e| refused("start a thread", &e))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Niceness of the calling thread; 0 if the system does not return it.
pub(crate) fn niceness() -> i32 {
    getpriority_process(None).unwrap_or(0)
}

/// Adds to the niceness of the calling thread. Without a process number, these calls of Linux refer to the thread.
fn lower(nice: u8) -> Result<()> {
    let niceness =
        getpriority_process(None).map_err(|e| refused("read its niceness", &e.into()))?;
    let niceness = (niceness + i32::from(nice)).min(MAX_NICENESS);
    setpriority_process(None, niceness)
        .map_err(|e| refused(&format!("set its niceness to {niceness}"), &e.into()))
}

fn refused(doing: &str, error: &std::io::Error) -> Error {
    let what = format!("a thread with a higher niceness cannot {doing}: {error}; set nice to 0");
    Error::new(ErrorKind::Storage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_and_its_threads_are_nicer() {
        let before = niceness();
        let (own, of_another) = with_niceness(3, || {
            let of_another = std::thread::scope(|scope| scope.spawn(niceness).join());
            Ok((niceness(), of_another.expect("no panic")))
        })
        .expect("anyone may be nicer");
        let expected = (before + 3).min(MAX_NICENESS);
        assert_eq!((own, of_another), (expected, expected));
        assert_eq!(niceness(), before);
    }

    #[test]
    fn there_is_a_limit_to_it() {
        let twice = with_niceness(15, || with_niceness(15, || Ok(niceness())));
        assert_eq!(twice, Ok(MAX_NICENESS));
    }

    #[test]
    fn a_panic_is_the_callers() {
        let caught =
            std::panic::catch_unwind(|| with_niceness(1, || -> Result<()> { panic!("why") }));
        let panic = caught.expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"why"));
    }
}
