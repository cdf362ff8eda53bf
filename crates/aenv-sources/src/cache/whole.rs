//! A blob on its way to being whole: which chunks are missing, and whether all together have the digest.

use std::io;
use std::sync::atomic::Ordering;

use aenv_layers::ReadAt;
use sha2::{Digest as _, Sha256};

use super::blob::CachedBlob;
use super::entry::Entry;
use crate::digest::Digest;
use crate::error::SourceError;

const READ_BYTES: usize = 1 << 20;

/// What a step of fetching brought.
pub(crate) enum Pull {
    /// So many bytes.
    Fetched(u64),
    /// The cache could not keep them.
    NoRoom,
    /// Nothing is missing.
    Nothing,
}

/// What all chunks together are.
pub(crate) enum Completeness {
    /// The blob.
    Whole,
    /// Not all there any more.
    Incomplete,
    /// Something else. It was given up, to be fetched anew.
    Mismatch,
}

impl CachedBlob {
    /// Fetches the next chunks that are missing from the cursor on.
    pub(crate) fn pull(&self, cursor: &mut u32) -> Result<Pull, SourceError> {
        let entry = self.entry();
        let geometry = entry.geometry;
        if !entry.is_trusted() || geometry.size() > entry.shared.budget.capacity() / 10 * 8 {
            return Ok(Pull::NoRoom);
        }
        let is_missing = |chunk: &u32| !entry.slots.phase(*chunk).is_stored();
        let Some(first) = (*cursor..geometry.count()).find(is_missing) else { return Ok(Pull::Nothing) };
        let most = (entry.shared.fetch_bytes / u64::from(geometry.chunk_bytes())).max(1);
        let end = u64::from(first).saturating_add(most).min(u64::from(geometry.count())) as u32;
        *cursor = first;
        let Some(run) = entry.obtain(first, end, self.remote())? else { return Ok(Pull::Fetched(0)) };
        if is_missing(&first) {
            return Ok(Pull::NoRoom);
        }
        Ok(Pull::Fetched(run.bytes.len() as u64))
    }

    /// Compares what is there with the digest, and remembers it when they agree.
    pub(crate) fn compare(&self) -> Result<Completeness, SourceError> {
        let entry = self.entry();
        if entry.is_whole() {
            return Ok(Completeness::Whole);
        }
        let losses = entry.losses.load(Ordering::Acquire);
        let found = self.hash()?;
        if found != entry.digest {
            entry.drop_range(0..entry.geometry.size());
            return Ok(Completeness::Mismatch);
        }
        Ok(if entry.confirm(losses) { Completeness::Whole } else { Completeness::Incomplete })
    }

    fn hash(&self) -> Result<Digest, SourceError> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; READ_BYTES];
        let mut offset = 0;
        loop {
            self.entry().shared.gate.step_back();
            let count = self.read_at(offset, &mut buffer).map_err(own)?;
            if count == 0 {
                return Ok(Digest::from_bytes(hash.finalize().into()));
            }
            hash.update(&buffer[..count]);
            offset += count as u64;
        }
    }
}

impl Entry {
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Marks the blob as whole, unless chunks were given up since `losses` was read or are missing now.
    fn confirm(&self, losses: u64) -> bool {
        // Eviction takes the same lock before it gives anything up.
        let _saver = self.saver.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.is_whole.store(true, Ordering::Release);
        let is_all_there = self.chunks().all(|chunk| self.slots.phase(chunk).is_stored());
        let is_whole = is_all_there && losses == self.losses.load(Ordering::Acquire);
        // `lose` clears the mark before it counts, so that a loss in between is seen here or clears it after.
        if !is_whole {
            self.is_whole.store(false, Ordering::Release);
        }
        self.is_dirty.store(true, Ordering::Release);
        is_whole
    }
}

/// Errors of a source come back out of the `io::Error` that they travelled in.
fn own(error: io::Error) -> SourceError {
    error.downcast().unwrap_or_else(|error| SourceError::invalid(error.to_string()))
}
