//! The thread that keeps a cache within its limits and makes it durable now and then.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::shelf::Shelf;

/// How often the room on the disk is looked at.
const TICK: Duration = Duration::from_secs(1);

/// What wakes the thread.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Default)]
struct BellState {
    is_full: bool,
    is_over: bool,
}

impl Bell {
    /// The cache has become too full.
    pub(super) fn ring(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_full = true;
        self.rung.notify_all();
    }

    fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.rung.notify_all();
    }

    /// Waits for a ring or a tick; false means the end.
    fn wait(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_quiet = |state: &mut BellState| !state.is_full && !state.is_over;
        let waited = self.rung.wait_timeout_while(state, TICK, is_quiet);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_full = false;
        !state.is_over
    }
}

/// What the thread looks after.
pub(super) struct Duties {
    pub(super) shelf: Arc<Shelf>,
    pub(super) root: PathBuf,
    pub(super) checkpoint_interval: Duration,
    pub(super) free_floor_bytes: u64,
    /// Held while room is made, so that two do not make it twice.
    pub(super) turn: Mutex<()>,
}

impl Duties {
    /// Evicts until the cache and its disk are within their limits.
    pub(super) fn tidy(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = &self.shelf.shared.budget;
        let missing = self.missing_on_disk();
        if missing > 0 {
            budget.rest();
        }
        let wanted = budget.excess().max(missing.min(budget.used()));
        if wanted > 0 {
            self.shelf.make_room(wanted);
        }
    }

    /// How much less is free on the file system than should be.
    fn missing_on_disk(&self) -> u64 {
        let Ok(status) = rustix::fs::statvfs(&self.root) else { return 0 };
        self.free_floor_bytes.saturating_sub(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

/// The thread; dropped, it makes everything durable and ends.
pub(super) struct Keeper {
    bell: Arc<Bell>,
    duties: Arc<Duties>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(bell: Arc<Bell>, duties: Duties) -> std::io::Result<Self> {
        let duties = Arc::new(duties);
        let (their_bell, their_duties) = (Arc::clone(&bell), Arc::clone(&duties));
        let thread = std::thread::Builder::new()
            .name("cache-keeper".to_owned())
            .spawn(move || keep(&their_bell, &their_duties))?;
        Ok(Self { bell, duties, thread: Some(thread) })
    }

    pub(super) fn duties(&self) -> &Duties {
        &self.duties
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.bell.end();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported on standard error; the checkpoint is still worth trying.
            let _ = thread.join();
        }
        self.duties.shelf.checkpoint();
    }
}

fn keep(bell: &Bell, duties: &Duties) {
    let mut last = Instant::now();
    while bell.wait() {
        duties.tidy();
        if last.elapsed() >= duties.checkpoint_interval {
            duties.shelf.checkpoint();
            last = Instant::now();
        }
    }
}
