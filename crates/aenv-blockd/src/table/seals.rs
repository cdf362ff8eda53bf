//! Layers on their way from writable to sealed: which ones, how far, and who waits. The work itself is in `seal`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use aenv_layers::WritableLayer;

use crate::image::Frozen;
use crate::refusal::Refusal;

/// A frozen layer and how far its sealing came in this program.
pub(crate) struct Pending {
    pub(crate) frozen: Frozen,
    pub(crate) layer: Arc<WritableLayer>,
    pub(crate) progress: Mutex<Progress>,
}

/// Steps that need not be done again when a later one failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The sealed file has its name.
    pub(crate) is_moved: bool,
    /// The disk reads from it.
    pub(crate) is_adopted: bool,
}

/// The seals of one image.
#[derive(Default)]
pub(crate) struct Seals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Arc<Pending>>,
    is_running: bool,
    /// Why the oldest could not be sealed at the last attempt.
    failure: Option<Refusal>,
    frozen_microseconds: HashMap<String, u64>,
}

impl Seals {
    /// Adds the newest frozen layer.
    pub(crate) fn add(&self, frozen: Frozen, layer: Arc<WritableLayer>, frozen_microseconds: u64) {
        let mut state = self.lock();
        state.frozen_microseconds.insert(frozen.seal_id.clone(), frozen_microseconds);
        state.pending.push_back(Arc::new(Pending { frozen, layer, progress: Mutex::default() }));
    }

    /// How long writes waited when the layer was frozen; 0 when an earlier program froze it.
    pub(crate) fn frozen_microseconds(&self, seal_id: &str) -> u64 {
        self.lock().frozen_microseconds.get(seal_id).copied().unwrap_or(0)
    }

    /// Claims the work, if there is any and nobody does it.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.lock();
        let begins = !state.is_running && !state.pending.is_empty();
        if begins {
            state.is_running = true;
            state.failure = None;
        }
        begins
    }

    /// The oldest layer; none ends the work.
    pub(crate) fn oldest(&self) -> Option<Arc<Pending>> {
        let mut state = self.lock();
        let oldest = state.pending.front().map(Arc::clone);
        if oldest.is_none() {
            state.is_running = false;
            self.changed.notify_all();
        }
        oldest
    }

    /// The oldest layer is sealed.
    pub(crate) fn complete(&self) {
        let mut state = self.lock();
        state.pending.pop_front();
        self.changed.notify_all();
    }

    /// The oldest layer could not be sealed; the work ends.
    pub(crate) fn fail(&self, failure: Refusal) {
        let mut state = self.lock();
        state.is_running = false;
        state.failure = Some(failure);
        self.changed.notify_all();
    }

    /// Waits until this layer is sealed, or all when none is named, or the work ended without that.
    pub(crate) fn wait(&self, seal_id: Option<&str>) -> Result<(), Refusal> {
        let mut state = self.lock();
        loop {
            let is_pending = |one: &Arc<Pending>| seal_id.is_none_or(|seal_id| one.frozen.seal_id == seal_id);
            if !state.pending.iter().any(is_pending) {
                return Ok(());
            }
            if !state.is_running {
                let failure = state.failure.as_ref().map(Refusal::copy);
                return Err(
                    failure.unwrap_or_else(|| Refusal::Bug("a frozen layer is not being sealed".into()))
                );
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
