//! Resources that tasks use in turn, and that are created once.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, PoisonError};

use rockmill_core::{CancelToken, Error, Lock, Result};

use crate::driver::{CANCEL_POLL, Stream};

/// A resource that can be used again after the device is done with it.
pub trait Poolable {
    /// Waits until no work of the device uses it.
    fn settle(&self) -> Result<()>;
}

impl Poolable for Stream {
    fn settle(&self) -> Result<()> {
        self.synchronize()
    }
}

/// A pool of resources that are created on first use; their number is limited.
#[derive(Debug)]
pub struct ResourcePool<T> {
    most: usize,
    resources: Lock<Resources<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Resources<T> {
    idle: Vec<T>,
    /// Idle or in use.
    made: usize,
}

impl<T: Poolable> ResourcePool<T> {
    /// An empty pool for at most `most` resources, and at least one.
    pub fn new(most: usize) -> Arc<Self> {
        let resources = Resources {
            idle: Vec::new(),
            made: 0,
        };
        Arc::new(Self {
            most: most.max(1),
            resources: Lock::new(resources),
            changed: Condvar::new(),
        })
    }

    /// Maximum number of resources.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes a free resource, or creates one with `make`, or waits if the maximum exists.
    pub fn take(
        self: &Arc<Self>,
        cancel: &CancelToken,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Pooled<T>> {
        let pooled = |resource| Pooled {
            pool: Arc::clone(self),
            resource: Some(resource),
        };
        let mut resources = self.resources.lock();
        loop {
            if let Some(resource) = resources.idle.pop() {
                return Ok(pooled(resource));
            }
            if resources.made < self.most {
                resources.made += 1;
                drop(resources);
                return make().map(pooled).inspect_err(|_| self.discard());
            }
            if cancel.is_cancelled() {
                return Err(Error::cancelled());
            }
            let waited = self.changed.wait_timeout(resources, CANCEL_POLL);
            resources = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn put(&self, resource: T) {
        self.resources.lock().idle.push(resource);
        self.changed.notify_one();
    }

    fn discard(&self) {
        self.resources.lock().made -= 1;
        self.changed.notify_one();
    }
}

/// A resource in use. It returns to the pool when dropped, or is destroyed if the device has failed meanwhile.
#[derive(Debug)]
pub struct Pooled<T: Poolable> {
    pool: Arc<ResourcePool<T>>,
    /// There until dropped.
    resource: Option<T>,
}

impl<T: Poolable> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.resource.as_ref().expect("it is there until dropped")
    }
}

impl<T: Poolable> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.resource.as_mut().expect("it is there until dropped")
    }
}

impl<T: Poolable> Drop for Pooled<T> {
    fn drop(&mut self) {
        match self.resource.take() {
            Some(resource) if resource.settle().is_ok() => self.pool.put(resource),
            _ => self.pool.discard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rockmill_core::ErrorKind;

    use super::*;

    #[derive(Debug)]
    struct Resource(Arc<AtomicBool>);

    impl Poolable for Resource {
        fn settle(&self) -> Result<()> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Device, "broken")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn no_more_are_made_than_are_in_use_at_once_and_what_broke_is_not_lent_again() {
        let (pool, cancel) = (ResourcePool::new(2), CancelToken::new());
        let broken = Arc::new(AtomicBool::new(false));
        let made = AtomicBool::new(false);
        let take = |cancel: &CancelToken| {
            made.store(false, Ordering::Relaxed);
            pool.take(cancel, || {
                made.store(true, Ordering::Relaxed);
                Ok(Resource(Arc::clone(&broken)))
            })
        };
        let (first, second) = (take(&cancel), take(&cancel));
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let error = take(&cancelled).expect_err("both are in use");
        assert_eq!(error.kind, ErrorKind::Cancelled);
        drop(first);
        let third = take(&cancel);
        assert!(!made.load(Ordering::Relaxed), "the first one is used again");
        broken.store(true, Ordering::Relaxed);
        drop((second, third));
        take(&cancel).expect("another is made");
        assert!(made.load(Ordering::Relaxed));
    }

    #[test]
    fn what_cannot_be_made_leaves_its_place_to_others() {
        let (pool, cancel) = (ResourcePool::<Resource>::new(1), CancelToken::new());
        for _ in 0..2 {
            let failed = pool.take(&cancel, || Err(Error::new(ErrorKind::Device, "no memory")));
            assert_eq!(failed.expect_err("it fails").kind, ErrorKind::Device);
        }
    }
}
