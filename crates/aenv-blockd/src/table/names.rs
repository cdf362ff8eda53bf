//! One change of an image at a time: verbs that change the same image wait for one another, others do not.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::image::ImageName;

/// Names whose images are being changed.
#[derive(Default)]
pub(crate) struct NameLocks {
    held: Mutex<HashSet<ImageName>>,
    released: Condvar,
}

/// The right to change an image.
pub(crate) struct NameLock<'a> {
    locks: &'a NameLocks,
    name: ImageName,
}

impl NameLocks {
    /// Waits until nobody else changes the image.
    pub(crate) fn lock(&self, name: &ImageName) -> NameLock<'_> {
        let mut held = self.lock_names();
        while !held.insert(name.clone()) {
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        NameLock { locks: self, name: name.clone() }
    }

    fn lock_names(&self) -> MutexGuard<'_, HashSet<ImageName>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameLock<'_> {
    fn drop(&mut self) {
        self.locks.lock_names().remove(&self.name);
        self.locks.released.notify_all();
    }
}
