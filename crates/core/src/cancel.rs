//! Telling a running job to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A flag that one thread sets and workers check once a block. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    flag: Arc<AtomicBool>,
    parent: Option<Arc<AtomicBool>>,
}

impl CancelToken {
    /// A token that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is set when it or `self` is cancelled.
    ///
    /// # Panics
    /// If `self` is a child itself: one level is all that jobs need.
    #[must_use]
    pub fn child(&self) -> Self {
        assert!(self.parent.is_none(), "a child has no children");
        Self {
            flag: Arc::default(),
            parent: Some(Arc::clone(&self.flag)),
        }
    }

    /// Asks all holders of clones and children to stop.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
    }

    /// Whether [`CancelToken::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        let set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        set(&self.flag) || self.parent.as_ref().is_some_and(set)
    }

    /// Nothing, or the error that a worker returns with.
    ///
    /// # Errors
    /// Cancelled once the token is set.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            Err(Error::cancelled())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stop_with_their_parent_but_not_the_other_way() {
        let parent = CancelToken::new();
        let (a, b) = (parent.child(), parent.child());
        a.cancel();
        assert!(a.is_cancelled() && !b.is_cancelled() && !parent.is_cancelled());
        parent.clone().cancel();
        assert!(b.check().is_err());
    }
}
