//! Gets chunks that are not readable yet: checks those of an earlier process, fetches the others, once for all who wait.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::budget::Budget;
use super::claim::{Access, Claim};
use super::disk::{is_full, read_exact, write_all};
use super::entry::{punch, Entry};
use super::flight::{Landing, Run};
use super::slots::Phase;
use crate::error::SourceError;
use crate::gate;
use crate::remote::Remote;

/// A remote, and a number by which those who wait know whether it is theirs.
pub(crate) struct NumberedRemote {
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) number: u64,
}

/// Space in the cache that goes back unless it is kept.
struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl<'a> Reservation<'a> {
    fn new(budget: &'a Budget, bytes: u64) -> Option<Self> {
        budget.reserve(bytes).then(|| Self { budget, bytes })
    }

    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

impl Entry {
    /// Makes a chunk readable, and perhaps those after it up to `end`. Returns its bytes if they had to be got;
    /// none means that it is stored and verified.
    pub(super) fn obtain(
        &self,
        chunk: u32,
        end: u32,
        remote: &NumberedRemote,
    ) -> Result<Option<Arc<Run>>, SourceError> {
        let is_background = gate::is_background();
        let gate = &self.shared.gate;
        let _foreground = (!is_background).then(|| gate.enter());
        loop {
            if is_background {
                gate.step_back();
            }
            match self.access(chunk, end) {
                Access::Ready => return Ok(None),
                Access::Busy(flight) => match flight.wait() {
                    Landing::Arrived(run) => {
                        self.shared.counters.joined.add(1);
                        return Ok(Some(run));
                    }
                    Landing::Failed(error, number) if number == remote.number => return Err(error),
                    Landing::Failed(..) | Landing::Released => {}
                },
                Access::Claimed(claim, Phase::Unverified) => {
                    if let Some(run) = self.verify(claim) {
                        return Ok(Some(run));
                    }
                }
                Access::Claimed(claim, _) => {
                    self.shared.counters.misses.add(1);
                    self.touch();
                    return self.fetch(claim, remote, !is_background).map(Some);
                }
            }
        }
    }

    /// Compares a chunk of an earlier process with its checksum. A wrong one is given up.
    fn verify(&self, claim: Claim<'_>) -> Option<Arc<Run>> {
        let chunk = claim.chunks.start;
        let offset = self.geometry.start(chunk);
        let mut bytes = vec![0; self.geometry.length(chunk) as usize];
        let is_read = read_exact(&*self.file, offset, &mut bytes).is_ok();
        if !is_read || crc32c::crc32c(&bytes) != self.sums[chunk as usize].load(Ordering::Acquire) {
            self.shared.counters.damaged_chunks.add(1);
            self.lose(claim);
            return None;
        }
        let run = Arc::new(Run { offset, bytes });
        claim.finish(|_| Phase::Verified, true, Landing::Arrived(Arc::clone(&run)));
        self.shared.counters.hits.add(1);
        Some(run)
    }

    fn fetch(
        &self,
        claim: Claim<'_>,
        remote: &NumberedRemote,
        is_foreground: bool,
    ) -> Result<Arc<Run>, SourceError> {
        let budget = &self.shared.budget;
        let reserve =
            |chunk| Reservation::new(budget, self.geometry.length(chunk)).filter(|_| self.is_trusted());
        let room: Vec<_> = claim.chunks.clone().map(reserve).collect();
        if budget.excess() > 0 {
            (self.shared.alarm)();
        }
        let range = self.geometry.bytes(claim.chunks.clone());
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if let Err(error) = remote.remote.fetch(range.start, &mut bytes) {
            claim.finish(|_| Phase::Absent, false, Landing::Failed(error.clone(), remote.number));
            return Err(error);
        }
        let counters = &self.shared.counters;
        counters.fetches.add(1);
        counters.fetched_bytes.add(bytes.len() as u64);
        let run = Arc::new(Run { offset: range.start, bytes });
        let first = claim.chunks.start;
        let stored: Vec<_> =
            claim.chunks.clone().zip(room).map(|(chunk, room)| self.store(chunk, room, &run)).collect();
        let phase = |chunk: u32| {
            let is_stored = stored[(chunk - first) as usize];
            if is_stored {
                Phase::Verified
            } else {
                Phase::Absent
            }
        };
        claim.finish(phase, is_foreground, Landing::Arrived(Arc::clone(&run)));
        Ok(run)
    }

    /// Writes a chunk that the caller has claimed. Says whether it is in the cache now.
    fn store(&self, chunk: u32, room: Option<Reservation<'_>>, run: &Run) -> bool {
        let counters = &self.shared.counters;
        let Some(room) = room else {
            counters.bypassed_chunks.add(1);
            return false;
        };
        let start = (self.geometry.start(chunk) - run.offset) as usize;
        let bytes = &run.bytes[start..start + self.geometry.length(chunk) as usize];
        if let Err(error) = write_all(&*self.file, self.geometry.start(chunk), bytes) {
            self.store_failed(chunk, &error);
            return false;
        }
        room.keep();
        self.sums[chunk as usize].store(crc32c::crc32c(bytes), Ordering::Release);
        self.is_dirty.store(true, Ordering::Release);
        true
    }

    fn store_failed(&self, chunk: u32, error: &io::Error) {
        self.shared.counters.failed_writes.add(1);
        self.shared.counters.bypassed_chunks.add(1);
        if is_full(error) {
            self.shared.budget.rest();
            (self.shared.alarm)();
        }
        // What was written of it would take room that nobody counts. It may fail as the write did; the next open
        // punches it out.
        let _ = punch(&*self.file, self.geometry, chunk..chunk + 1);
    }
}
