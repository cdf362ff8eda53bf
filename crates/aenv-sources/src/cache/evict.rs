//! Gives chunks up: to make room, or because their bytes were wrong.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;

use super::claim::Claim;
use super::disk::absent_is_fine;
use super::entry::{punch, Entry, INDEX};
use super::flight::Landing;
use super::slots::Phase;

/// How often a chunk that somebody reads is tried again.
const TRIES: usize = 1000;

impl Entry {
    /// Gives up at least so many bytes of chunks that were not used lately, if there are as many. Returns how many.
    pub(crate) fn evict(&self, wanted: u64) -> u64 {
        let mut hand = self.saver.lock().unwrap_or_else(PoisonError::into_inner);
        let victims = self.choose(wanted, &mut hand);
        if victims.is_empty() {
            return 0;
        }
        self.is_whole.store(false, Ordering::Release);
        // Victims are busy and so not in the index that is written here.
        if self.save().or_else(|_| self.forget_index()).is_err() || !self.is_trusted() {
            for victim in victims {
                victim.finish(|_| Phase::Unverified, false, Landing::Released);
            }
            return 0;
        }
        let mut freed = 0;
        for victim in victims {
            self.shared.counters.evicted_chunks.add(1);
            freed += self.lose(victim);
        }
        self.shared.counters.evicted_bytes.add(freed);
        freed
    }

    /// Goes round the chunks like the hand of a clock: what was used since the last time is spared once.
    fn choose(&self, wanted: u64, hand: &mut u32) -> Vec<Claim<'_>> {
        let count = self.geometry.count();
        let mut victims = Vec::new();
        let mut bytes = 0;
        for _ in 0..u64::from(count) * 2 {
            if bytes >= wanted {
                break;
            }
            let chunk = *hand % count;
            *hand = (chunk + 1) % count;
            if self.slots.phase(chunk).is_stored() && !self.slots.take_reference(chunk) {
                if let Some(claim) = self.claim_stored(chunk) {
                    bytes += self.geometry.length(chunk);
                    victims.push(claim);
                }
            }
        }
        victims
    }

    /// On a full disk no new index can be written, but the old one can be removed.
    fn forget_index(&self) -> io::Result<()> {
        absent_is_fine(self.directory.remove(INDEX))?;
        self.directory.sync()?;
        self.is_dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Gives up a range whose bytes turned out wrong, so that the next read fetches it. A chunk that is being fetched
    /// is new already. The durable index may still name the chunk; its checksum tells after a crash.
    pub(crate) fn drop_range(&self, range: Range<u64>) {
        let end = range.end.min(self.geometry.size());
        if range.start >= end {
            return;
        }
        for chunk in self.geometry.chunk_of(range.start)..=self.geometry.chunk_of(end - 1) {
            for _ in 0..TRIES {
                if let Some(claim) = self.claim_stored(chunk) {
                    self.lose(claim);
                    break;
                }
                if !self.slots.phase(chunk).is_stored() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// Ends the life of a chunk that was stored and is claimed. Returns the bytes that this freed.
    pub(super) fn lose(&self, claim: Claim<'_>) -> u64 {
        let chunks = claim.chunks.clone();
        let range = self.geometry.bytes(chunks.clone());
        let freed = range.end - range.start;
        self.is_whole.store(false, Ordering::Release);
        self.losses.fetch_add(1, Ordering::AcqRel);
        self.is_dirty.store(true, Ordering::Release);
        // If it fails the bytes stay, unnamed, until the chunk is fetched again or the blob is opened anew.
        let _ = punch(&*self.file, self.geometry, chunks);
        self.shared.budget.release(freed);
        claim.finish(|_| Phase::Absent, false, Landing::Released);
        freed
    }
}
