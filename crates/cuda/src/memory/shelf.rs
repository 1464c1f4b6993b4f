//! Things that tasks take in turn, and that are made once.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rockmill_core::{CancelToken, Error, Result};

use crate::driver::{CANCEL_POLL, Stream};

/// A resource that can be lent again once the device is done with it.
pub trait Lend {
    /// Waits until nothing is on its way.
    fn settle(&self) -> Result<()>;
}

impl Lend for Stream {
    fn settle(&self) -> Result<()> {
        self.synchronize()
    }
}

/// Things that are made when first needed and lent out, so many at most.
#[derive(Debug)]
pub struct Shelf<T> {
    most: usize,
    things: Mutex<Things<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Things<T> {
    idle: Vec<T>,
    /// Idle or lent.
    made: usize,
}

impl<T: Lend> Shelf<T> {
    /// An empty shelf for `most` things, or one if that is 0.
    pub fn new(most: usize) -> Arc<Self> {
        let things = Things {
            idle: Vec::new(),
            made: 0,
        };
        Arc::new(Self {
            most: most.max(1),
            things: Mutex::new(things),
            changed: Condvar::new(),
        })
    }

    /// The most that are lent at once.
    pub fn most(&self) -> usize {
        self.most
    }

    fn things(&self) -> MutexGuard<'_, Things<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one, or makes one with `make`, or waits where there are as many as there may be.
    pub fn take(
        self: &Arc<Self>,
        cancel: &CancelToken,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Lent<T>> {
        let lend = |thing| Lent {
            shelf: Arc::clone(self),
            thing: Some(thing),
        };
        let mut things = self.things();
        loop {
            if let Some(thing) = things.idle.pop() {
                return Ok(lend(thing));
            }
            if things.made < self.most {
                things.made += 1;
                drop(things);
                return make().map(lend).inspect_err(|_| self.discard());
            }
            if cancel.is_cancelled() {
                return Err(Error::cancelled());
            }
            let waited = self.changed.wait_timeout(things, CANCEL_POLL);
            things = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn put(&self, thing: T) {
        self.things().idle.push(thing);
        self.changed.notify_one();
    }

    fn discard(&self) {
        self.things().made -= 1;
        self.changed.notify_one();
    }
}

/// Something lent, which goes back when dropped, or is given up if the device fails meanwhile.
#[derive(Debug)]
pub struct Lent<T: Lend> {
    shelf: Arc<Shelf<T>>,
    /// There until dropped.
    thing: Option<T>,
}

impl<T: Lend> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("it is there until dropped")
    }
}

impl<T: Lend> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("it is there until dropped")
    }
}

impl<T: Lend> Drop for Lent<T> {
    fn drop(&mut self) {
        match self.thing.take() {
            Some(thing) if thing.settle().is_ok() => self.shelf.put(thing),
            _ => self.shelf.discard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rockmill_core::ErrorKind;

    use super::*;

    #[derive(Debug)]
    struct Thing(Arc<AtomicBool>);

    impl Lend for Thing {
        fn settle(&self) -> Result<()> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Device, "broken")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn no_more_are_made_than_are_in_use_at_once_and_what_broke_is_not_lent_again() {
        let (shelf, cancel) = (Shelf::new(2), CancelToken::new());
        let broken = Arc::new(AtomicBool::new(false));
        let made = AtomicBool::new(false);
        let take = |cancel: &CancelToken| {
            made.store(false, Ordering::Relaxed);
            shelf.take(cancel, || {
                made.store(true, Ordering::Relaxed);
                Ok(Thing(Arc::clone(&broken)))
            })
        };
        let (first, second) = (take(&cancel), take(&cancel));
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let error = take(&cancelled).expect_err("both are lent");
        assert_eq!(error.kind, ErrorKind::Cancelled);
        drop(first);
        let third = take(&cancel);
        assert!(!made.load(Ordering::Relaxed), "the first one is lent again");
        broken.store(true, Ordering::Relaxed);
        drop((second, third));
        take(&cancel).expect("another is made");
        assert!(made.load(Ordering::Relaxed));
    }

    #[test]
    fn what_cannot_be_made_leaves_its_place_to_others() {
        let (shelf, cancel) = (Shelf::<Thing>::new(1), CancelToken::new());
        for _ in 0..2 {
            let failed = shelf.take(&cancel, || Err(Error::new(ErrorKind::Device, "no memory")));
            assert_eq!(failed.expect_err("it fails").kind, ErrorKind::Device);
        }
    }
}
