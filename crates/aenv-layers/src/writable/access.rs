//! Taking the locks. A thread that panics under one leaves the layer unusable rather than wrong.

use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use super::{Marks, State, WritableLayer};
use crate::error::LayerError;

const POISONED: &str = "a thread panicked in the middle of a change to this layer";

impl WritableLayer {
    /// Enters beside other reads and writes.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().expect(POISONED)
    }

    /// Enters to write; refuses when the layer takes no more writes.
    pub(super) fn enter_to_write(&self) -> Result<RwLockReadGuard<'_, ()>, LayerError> {
        let guard = self.enter();
        self.check_not_failed()?;
        if self.is_frozen() {
            return Err(LayerError::Frozen { layer: self.name.clone() });
        }
        Ok(guard)
    }

    /// Enters alone: no read or write is under way meanwhile.
    pub(super) fn enter_alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().expect(POISONED)
    }

    pub(super) fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().expect(POISONED)
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect(POISONED)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect(POISONED)
    }
}
