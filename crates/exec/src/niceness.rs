//! Working at a lower priority than the thread that asks for it.

use rockmill_core::{Error, ErrorKind, Result};
use rustix::process::{getpriority_process, setpriority_process};

/// Largest niceness that Linux knows (`man 2 setpriority`).
const MAX_NICENESS: i32 = 19;

/// Does `work` on a thread whose niceness is `nice` above the caller's, at most 19; threads that it starts
/// inherit that. The caller's stays as it is: a process without privileges could not take it back.
///
/// # Errors
/// Storage if the system has no thread or refuses to change its niceness; those of `work`.
pub fn nicer<T: Send>(nice: u8, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let span = tracing::Span::current();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let work = move || {
        lower(nice)?;
        tracing::dispatcher::with_default(&dispatch, || span.in_scope(work))
    };
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

/// Niceness of the calling thread. Where the system does not tell, all threads count as alike.
pub(crate) fn niceness() -> i32 {
    getpriority_process(None).unwrap_or(0)
}

/// Adds to the niceness of the calling thread: where Linux is asked about a process by no number, it means
/// the thread.
fn lower(nice: u8) -> Result<()> {
    let niceness =
        getpriority_process(None).map_err(|e| refused("ask for its niceness", &e.into()))?;
    let niceness = (niceness + i32::from(nice)).min(MAX_NICENESS);
    setpriority_process(None, niceness)
        .map_err(|e| refused(&format!("set its niceness to {niceness}"), &e.into()))
}

fn refused(doing: &str, error: &std::io::Error) -> Error {
    let what = format!("a thread of lower priority cannot {doing}: {error}; set nice to 0");
    Error::new(ErrorKind::Storage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_and_its_threads_are_nicer() {
        let before = niceness();
        let (own, of_another) = nicer(3, || {
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
        let twice = nicer(15, || nicer(15, || Ok(niceness())));
        assert_eq!(twice, Ok(MAX_NICENESS));
    }

    #[test]
    fn a_panic_is_the_callers() {
        let caught = std::panic::catch_unwind(|| nicer(1, || -> Result<()> { panic!("why") }));
        let panic = caught.expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"why"));
    }
}
