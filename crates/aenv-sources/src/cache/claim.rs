//! Chunks that belong to one thread for a while, and how the others learn that it has ended.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::entry::Entry;
use super::flight::{Flight, Landing};
use super::slots::Phase;

/// How one gets at a chunk.
pub(super) enum Access<'a> {
    /// It can be read.
    Ready,
    /// Somebody has it: wait.
    Busy(Arc<Flight>),
    /// The caller has it, and it was in this phase before.
    Claimed(Claim<'a>, Phase),
}

/// Chunks that belong to the caller. Dropped, they are absent and those who wait look again.
pub(super) struct Claim<'a> {
    entry: &'a Entry,
    pub(super) chunks: Range<u32>,
    flight: Arc<Flight>,
}

impl Claim<'_> {
    /// Gives the chunks back, each in its phase, and tells those who wait.
    pub(super) fn finish(mut self, phase: impl Fn(u32) -> Phase, is_referenced: bool, landing: Landing) {
        self.end(phase, is_referenced, landing);
    }

    fn end(&mut self, phase: impl Fn(u32) -> Phase, is_referenced: bool, landing: Landing) {
        let mut flights = self.entry.flights.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in std::mem::replace(&mut self.chunks, 0..0) {
            self.entry.slots.release(chunk, phase(chunk), is_referenced);
            flights.remove(&chunk);
        }
        drop(flights);
        self.flight.land(landing);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.chunks.is_empty() {
            self.end(|_| Phase::Absent, false, Landing::Released);
        }
    }
}

impl Entry {
    /// What is to be done to get at a chunk; `end` bounds the run that may be taken with it.
    pub(super) fn access(&self, chunk: u32, end: u32) -> Access<'_> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let phase = self.slots.phase(chunk);
        match phase {
            Phase::Verified => return Access::Ready,
            Phase::Busy => {
                let flight = flights.get(&chunk).expect("a busy chunk has a flight");
                return Access::Busy(Arc::clone(flight));
            }
            Phase::Absent | Phase::Unverified => {}
        }
        let mut claim = Claim { entry: self, chunks: chunk..chunk, flight: Arc::default() };
        let wanted = if phase == Phase::Absent { chunk..end.max(chunk + 1) } else { chunk..chunk + 1 };
        for next in wanted {
            if !self.slots.claim(next, phase) {
                break;
            }
            flights.insert(next, Arc::clone(&claim.flight));
            claim.chunks.end = next + 1;
        }
        Access::Claimed(claim, phase)
    }

    /// Takes a stored chunk away from everybody, unless somebody reads it.
    pub(super) fn claim_stored(&self, chunk: u32) -> Option<Claim<'_>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let phase = self.slots.phase(chunk);
        if !phase.is_stored() || !self.slots.claim(chunk, phase) {
            return None;
        }
        let flight = Arc::default();
        flights.insert(chunk, Arc::clone(&flight));
        Some(Claim { entry: self, chunks: chunk..chunk + 1, flight })
    }
}
