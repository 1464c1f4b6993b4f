//! Telling a running job to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A flag that one thread sets and workers check for each block. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    parent: Option<CancelToken>,
}

impl CancelToken {
    /// A token that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is set when it or `self` is cancelled.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Flag {
            is_set: AtomicBool::new(false),
            parent: Some(self.clone()),
        }))
    }

    /// Asks all holders of clones and children to stop.
    pub fn cancel(&self) {
        self.0.is_set.store(true, Ordering::Release);
    }

    /// Whether [`CancelToken::cancel`] was called on this token or on one of its parents.
    pub fn is_cancelled(&self) -> bool {
        let is_set = self.0.is_set.load(Ordering::Acquire);
        is_set || self.is_parent_cancelled()
    }

    /// Whether a parent of this token was cancelled.
    pub fn is_parent_cancelled(&self) -> bool {
        self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Succeeds if the token is not set.
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
        assert!(!a.is_parent_cancelled());
        let grandchild = b.child();
        assert!(!grandchild.is_cancelled());
        parent.clone().cancel();
        assert!(b.is_parent_cancelled());
        assert!(b.check().is_err() && grandchild.check().is_err());
    }
}
