//! What the cache did, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What the cache did since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Reads of a chunk that was there.
    pub hits: u64,
    /// Reads of a chunk that had to be fetched.
    pub misses: u64,
    /// Reads that waited for a fetch that another had begun.
    pub joined: u64,
    /// Requests to remotes that brought bytes.
    pub fetches: u64,
    /// Bytes that remotes brought.
    pub fetched_bytes: u64,
    /// Chunks that were fetched and not stored, because the cache or its disk was full.
    pub bypassed_chunks: u64,
    /// Chunks that were given up to make room.
    pub evicted_chunks: u64,
    /// Bytes that were given up to make room.
    pub evicted_bytes: u64,
    /// Chunks whose bytes on disk were wrong or unreadable.
    pub damaged_chunks: u64,
    /// Failed writes to the cache.
    pub failed_writes: u64,
    /// Blobs whose content did not have their digest.
    pub tainted_blobs: u64,
    /// Bytes in the cache.
    pub used_bytes: u64,
    /// What it may hold.
    pub capacity_bytes: u64,
    /// Blobs in the cache.
    pub blobs: u64,
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a cache.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) joined: Counter,
    pub(crate) fetches: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) bypassed_chunks: Counter,
    pub(crate) evicted_chunks: Counter,
    pub(crate) evicted_bytes: Counter,
    pub(crate) damaged_chunks: Counter,
    pub(crate) failed_writes: Counter,
    pub(crate) tainted_blobs: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Statistics {
        Statistics {
            hits: self.hits.get(),
            misses: self.misses.get(),
            joined: self.joined.get(),
            fetches: self.fetches.get(),
            fetched_bytes: self.fetched_bytes.get(),
            bypassed_chunks: self.bypassed_chunks.get(),
            evicted_chunks: self.evicted_chunks.get(),
            evicted_bytes: self.evicted_bytes.get(),
            damaged_chunks: self.damaged_chunks.get(),
            failed_writes: self.failed_writes.get(),
            tainted_blobs: self.tainted_blobs.get(),
            ..Statistics::default()
        }
    }
}
