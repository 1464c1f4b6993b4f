//! A mutex that stays usable after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex without poison. A panic under it becomes an error of its own job, and other jobs go on with the value.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the value.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, unless it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, without a wait.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_value_usable() {
        let value = Lock::new(1);
        std::thread::scope(|scope| {
            let panics = || {
                let mut held = value.lock();
                *held = 2;
                panic!("on purpose");
            };
            scope.spawn(panics).join().expect_err("it panics");
        });
        assert_eq!(value.try_lock().as_deref(), Some(&2));
        assert_eq!(*value.lock(), 2);
        assert_eq!(value.into_inner(), 2);
    }
}
