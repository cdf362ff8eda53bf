//! The state of each chunk, in one word: what phase it is in, how many readers hold it, whether it was used lately.
//!
//! Invariant: a chunk that has readers is `Verified`, and only the owner of a `Busy` chunk touches its bytes on disk.

use std::sync::atomic::{AtomicU32, Ordering};

const PHASE: u32 = 0b11;
const REFERENCED: u32 = 0b100;
const READER: u32 = 0b1000;

/// What a chunk is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not in the cache.
    Absent,
    /// Somebody fetches, checks or evicts it.
    Busy,
    /// On disk since before the file was opened; its checksum is still to be compared.
    Unverified,
    /// On disk and readable.
    Verified,
}

impl Phase {
    fn of(word: u32) -> Self {
        match word & PHASE {
            0 => Self::Absent,
            1 => Self::Busy,
            2 => Self::Unverified,
            _ => Self::Verified,
        }
    }

    fn word(self) -> u32 {
        self as u32
    }

    /// Whether the bytes are on disk.
    pub(crate) fn is_stored(self) -> bool {
        matches!(self, Self::Unverified | Self::Verified)
    }
}

/// The chunks of one blob.
pub(crate) struct Slots(Box<[AtomicU32]>);

impl Slots {
    pub(crate) fn new(phases: impl Iterator<Item = Phase>) -> Self {
        Self(phases.map(|phase| AtomicU32::new(phase.word())).collect())
    }

    pub(crate) fn phase(&self, chunk: u32) -> Phase {
        Phase::of(self.0[chunk as usize].load(Ordering::Acquire))
    }

    /// Holds a verified chunk for reading: it is neither evicted nor overwritten meanwhile.
    pub(crate) fn hold(&self, chunk: u32) -> Option<Held<'_>> {
        let slot = &self.0[chunk as usize];
        let add = |word| (Phase::of(word) == Phase::Verified).then_some((word | REFERENCED) + READER);
        slot.fetch_update(Ordering::Acquire, Ordering::Relaxed, add).ok()?;
        Some(Held(slot))
    }

    /// Makes a chunk `Busy` for the caller, when it is in that phase and nobody reads it.
    pub(crate) fn claim(&self, chunk: u32, phase: Phase) -> bool {
        let take = |word| (word & !REFERENCED == phase.word()).then_some(Phase::Busy.word());
        self.0[chunk as usize].fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }

    /// Ends a claim.
    pub(crate) fn release(&self, chunk: u32, phase: Phase, is_referenced: bool) {
        let word = phase.word() | if is_referenced { REFERENCED } else { 0 };
        let before = self.0[chunk as usize].swap(word, Ordering::Release);
        debug_assert_eq!(before, Phase::Busy.word(), "a claim is ended by its owner");
    }

    /// Whether the chunk was used since this was asked last.
    pub(crate) fn take_reference(&self, chunk: u32) -> bool {
        self.0[chunk as usize].fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }
}

/// A chunk that somebody reads.
pub(crate) struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(READER, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_with_readers_is_not_claimed() {
        let slots = Slots::new([Phase::Verified].into_iter());
        let held = slots.hold(0).unwrap();
        let other = slots.hold(0).unwrap();
        assert!(!slots.claim(0, Phase::Verified));
        drop(held);
        assert!(!slots.claim(0, Phase::Verified));
        drop(other);
        assert!(slots.claim(0, Phase::Verified));
        assert!(slots.hold(0).is_none());
        slots.release(0, Phase::Absent, false);
        assert_eq!(slots.phase(0), Phase::Absent);
    }

    #[test]
    fn use_is_remembered_once() {
        let slots = Slots::new([Phase::Verified].into_iter());
        assert!(!slots.take_reference(0));
        drop(slots.hold(0));
        assert!(slots.take_reference(0));
        assert!(!slots.take_reference(0));
    }
}
