//! How much the cache may hold. Space is reserved before it is written, so the limit holds at every moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long nothing is stored after the file system was full.
const REST_AFTER_FULL: Duration = Duration::from_secs(10);

/// The limit of a cache and what is used of it.
pub(crate) struct Budget {
    capacity: u64,
    used: AtomicU64,
    begin: Instant,
    /// Milliseconds after `begin` until which nothing is stored.
    resting_until: AtomicU64,
}

impl Budget {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, used: AtomicU64::new(0), begin: Instant::now(), resting_until: AtomicU64::new(0) }
    }

    /// Takes space; refused when the cache or the file system is full.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let is_resting = self.now() < self.resting_until.load(Ordering::Relaxed);
        let add = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.capacity);
        !is_resting && self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts what is there already, whatever the limit says.
    pub(crate) fn count(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "only what was reserved is released");
    }

    /// Whether so much can be stored without coming near the limit.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.capacity / 10 * 9
    }

    /// Stores nothing for a while, because the file system is full.
    pub(crate) fn rest(&self) {
        let until = self.now() + u64::try_from(REST_AFTER_FULL.as_millis()).unwrap_or(u64::MAX);
        self.resting_until.store(until, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How much must go, because the high mark (90 %) is passed, to get down to the low one (80 %).
    pub(crate) fn excess(&self) -> u64 {
        let used = self.used();
        let (low, high) = (self.capacity / 10 * 8, self.capacity / 10 * 9);
        if used > high {
            used - low
        } else {
            0
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_never_passed() {
        let budget = Budget::new(100);
        assert!(budget.reserve(60) && !budget.reserve(41) && budget.reserve(40));
        assert_eq!((budget.used(), budget.excess()), (100, 20));
        budget.release(30);
        assert_eq!(budget.excess(), 0);
    }

    #[test]
    fn a_full_file_system_is_left_alone_for_a_while() {
        let budget = Budget::new(100);
        budget.rest();
        assert!(!budget.reserve(1));
    }
}
