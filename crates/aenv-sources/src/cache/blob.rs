//! A blob as its readers see it: from the cache where it can be, from the remote where it must be.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use aenv_layers::ReadAt;

use super::disk::read_exact;
use super::entry::Entry;
use super::fill::NumberedRemote;
use super::shelf::Use;
use crate::error::SourceError;
use crate::gate;
use crate::remote::Remote;

/// How often a chunk that vanishes between two looks is looked for before the cache is left aside.
const TRIES: usize = 8;

static NEXT_REMOTE: AtomicU64 = AtomicU64::new(0);

/// A blob that is read through the cache.
pub(crate) struct CachedBlob {
    entry: Arc<Entry>,
    remote: NumberedRemote,
    /// Where the last fetch ended, and how many chunks the next takes if it goes on there.
    next_offset: AtomicU64,
    window: AtomicU32,
    _use: Option<Use>,
}

impl CachedBlob {
    /// `in_use` keeps the blob in memory.
    pub(crate) fn new(entry: Arc<Entry>, remote: Arc<dyn Remote>, in_use: Option<Use>) -> Self {
        let remote = NumberedRemote { remote, number: NEXT_REMOTE.fetch_add(1, Ordering::Relaxed) };
        Self { entry, remote, next_offset: AtomicU64::new(u64::MAX), window: AtomicU32::new(1), _use: in_use }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    pub(super) fn remote(&self) -> &NumberedRemote {
        &self.remote
    }

    /// Reads within one chunk, or a little more when a fetch brought it.
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let entry = &*self.entry;
        let geometry = entry.geometry();
        let chunk = geometry.chunk_of(offset);
        let rest = geometry.start(chunk) + geometry.length(chunk) - offset;
        let count = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        for _ in 0..TRIES {
            if let Some(held) = entry.slots.hold(chunk) {
                if read_exact(&*entry.file, offset, &mut buffer[..count]).is_ok() {
                    entry.shared.counters.hits.add(1);
                    return Ok(count);
                }
                drop(held);
                entry.shared.counters.damaged_chunks.add(1);
                entry.drop_range(offset..offset + 1);
            }
            let end = self.end_of_run(offset, buffer.len());
            if let Some(run) = entry.obtain(chunk, end, &self.remote)? {
                self.next_offset.store(run.offset + run.bytes.len() as u64, Ordering::Relaxed);
                return Ok(run.copy(offset, buffer));
            }
        }
        self.remote.remote.fetch(offset, &mut buffer[..count])?;
        Ok(count)
    }

    /// Up to which chunk a fetch for this read goes: what it needs, and more when reads follow each other.
    fn end_of_run(&self, offset: u64, length: usize) -> u32 {
        let geometry = self.entry.geometry();
        let chunk = geometry.chunk_of(offset);
        let last = (offset + length as u64).min(geometry.size()) - 1;
        let needed = geometry.chunk_of(last) + 1 - chunk;
        let shared = &self.entry.shared;
        let most = (shared.fetch_bytes / u64::from(geometry.chunk_bytes())).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        // What is fetched ahead into a full cache is fetched for nothing.
        let ahead = if gate::is_background() || !shared.budget.has_room_for(shared.fetch_bytes) {
            1
        } else if self.next_offset.load(Ordering::Relaxed) == offset {
            let window = self.window.load(Ordering::Relaxed).saturating_mul(2).min(most);
            self.window.store(window, Ordering::Relaxed);
            window
        } else {
            self.window.store(1, Ordering::Relaxed);
            1
        };
        let length = needed.max(ahead).min(most).min(geometry.count() - chunk);
        chunk + length
    }
}

impl ReadAt for CachedBlob {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.entry.geometry().size().saturating_sub(offset);
        let length = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..length];
        if length == 0 {
            return Ok(0);
        }
        if self.entry.is_tainted() {
            return Err(SourceError::Tainted { digest: self.entry.digest }.into());
        }
        if !self.entry.is_trusted() {
            self.remote.remote.fetch(offset, buffer)?;
            return Ok(length);
        }
        let mut done = 0;
        while done < length {
            match self.read_part(offset + done as u64, &mut buffer[done..]) {
                Ok(count) => done += count,
                // What was read counts; the next call meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.entry.geometry().size())
    }

    fn evict(&self, offset: u64, length: u64) {
        self.entry.drop_range(offset..offset.saturating_add(length));
    }
}
