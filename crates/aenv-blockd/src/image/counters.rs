//! What happened to an image since this program began. Counts only; they decide nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    zeroed_bytes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    zeroed_bytes: u64,
    flushes: u64,
    errors: u64,
}

impl Counters {
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_zeroed(&self, bytes: u64) {
        self.zeroed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an error, and says whether it is one of the first, which are worth a line in the log.
    pub(crate) fn count_error(&self) -> bool {
        self.errors.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_power_of_two()
    }

    pub(crate) fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            reads: read(&self.reads),
            read_bytes: read(&self.read_bytes),
            writes: read(&self.writes),
            written_bytes: read(&self.written_bytes),
            zeroed_bytes: read(&self.zeroed_bytes),
            flushes: read(&self.flushes),
            errors: read(&self.errors),
        }
    }
}
