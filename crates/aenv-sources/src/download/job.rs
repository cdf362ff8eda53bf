//! One blob on its way into the cache, fetched slice by slice so that many blobs take turns.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::cache::{CachedBlob, Completeness, Entry, Pull};
use crate::digest::Digest;
use crate::error::SourceError;

/// How much of a blob is fetched before another has its turn.
const SLICE: u64 = 16 << 20;
/// A blob that does not have its digest may have been damaged on its way, once.
const MAX_MISMATCHES: u32 = 2;

/// What became of a download.
#[derive(Clone, Debug)]
pub enum DownloadState {
    /// It waits for its turn, or for its next try.
    Waiting,
    /// It is being fetched or compared.
    Running,
    /// The whole blob is in the cache and has its digest. Its readers need the remote no more.
    Whole,
    /// Nobody reads the blob any more.
    Closed,
    /// The cache has no room for the whole blob.
    NoRoom,
    /// The remote failed, as often as it may. The blob is read on demand.
    Failed(SourceError),
    /// The content does not have its digest. Reads of the blob fail.
    Tainted,
}

impl DownloadState {
    /// Whether it will not change any more.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

/// What is known of a download to those who wait for it.
pub(crate) struct Progress {
    state: Mutex<DownloadState>,
    changed: Condvar,
}

impl Progress {
    pub(super) fn state(&self) -> DownloadState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn wait(&self, timeout: Duration) -> DownloadState {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, timeout, |state| !state.is_final());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(super) fn set(&self, state: DownloadState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.notify_all();
    }
}

/// What is to be done with a job after a slice.
pub(super) enum Turn {
    /// It takes its place at the end of the queue.
    Again,
    /// It has ended.
    Over,
}

/// A blob that is being fetched.
pub(super) struct Job {
    pub(super) digest: Digest,
    pub(super) not_before: Instant,
    pub(super) progress: Arc<Progress>,
    blob: Weak<CachedBlob>,
    cursor: u32,
    failures: u32,
    mismatches: u32,
}

impl Job {
    pub(super) fn new(blob: Weak<CachedBlob>, entry: &Entry, not_before: Instant) -> Self {
        let progress = Progress { state: Mutex::new(DownloadState::Waiting), changed: Condvar::new() };
        Self {
            digest: entry.digest(),
            not_before,
            progress: Arc::new(progress),
            blob,
            cursor: 0,
            failures: 0,
            mismatches: 0,
        }
    }

    /// Fetches a slice. `pause` is told what was fetched, and says whether to go on.
    pub(super) fn take_turn(&mut self, tries: u32, pause: &dyn Fn(u64) -> bool) -> Turn {
        self.progress.set(DownloadState::Running);
        let state = match self.blob.upgrade() {
            Some(blob) => self.advance(&blob, tries, pause),
            None => DownloadState::Closed,
        };
        let turn = if state.is_final() { Turn::Over } else { Turn::Again };
        self.progress.set(state);
        turn
    }

    fn advance(&mut self, blob: &CachedBlob, tries: u32, pause: &dyn Fn(u64) -> bool) -> DownloadState {
        let mut fetched = 0;
        while fetched < SLICE {
            match blob.pull(&mut self.cursor) {
                Ok(Pull::Fetched(bytes)) => {
                    fetched += bytes;
                    if !pause(bytes) {
                        return DownloadState::Closed;
                    }
                }
                Ok(Pull::NoRoom) => return DownloadState::NoRoom,
                Ok(Pull::Nothing) => return self.compare(blob, tries),
                Err(error) => return self.fail(error, tries),
            }
        }
        DownloadState::Waiting
    }

    fn compare(&mut self, blob: &CachedBlob, tries: u32) -> DownloadState {
        self.cursor = 0;
        match blob.compare() {
            Ok(Completeness::Whole) => DownloadState::Whole,
            Ok(Completeness::Incomplete) => DownloadState::Waiting,
            Ok(Completeness::Mismatch) => {
                self.mismatches += 1;
                if self.mismatches < MAX_MISMATCHES {
                    return DownloadState::Waiting;
                }
                blob.entry().taint();
                DownloadState::Tainted
            }
            Err(error) => self.fail(error, tries),
        }
    }

    fn fail(&mut self, error: SourceError, tries: u32) -> DownloadState {
        self.failures += 1;
        if self.failures >= tries {
            return DownloadState::Failed(error);
        }
        self.not_before = Instant::now() + Duration::from_secs(1 << self.failures.min(6));
        DownloadState::Waiting
    }
}
