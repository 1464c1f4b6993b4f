//! Events of other threads.

use tracing::dispatcher;

/// Returns `work` for another thread, whose events go to the subscriber of the calling thread. An application in C may
/// have a subscriber for each service.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let dispatch = dispatcher::get_default(Clone::clone);
    move || dispatcher::with_default(&dispatch, work)
}
