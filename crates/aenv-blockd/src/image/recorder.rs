//! Writing down what is read of an image, in the order of first reads: what a machine needs right after its start.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reads that one recording holds; later ones are not part of a beginning any more.
pub(crate) const MAX_RANGES: usize = 64 << 10;

/// Bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    /// The first byte.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) length: u64,
}

/// What was read since the recording began. Costs one load while there is none.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    is_on: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    ranges: Vec<Range>,
    known: HashSet<Range>,
}

impl Recorder {
    /// Begins a recording; says whether there was none.
    pub(crate) fn start(&self) -> bool {
        let mut notes = self.lock();
        if self.is_on.swap(true, Ordering::Relaxed) {
            return false;
        }
        *notes = Notes::default();
        true
    }

    /// Whether a recording is under way.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes a read.
    pub(crate) fn note(&self, offset: u64, length: u64) {
        if !self.is_on() || length == 0 {
            return;
        }
        let range = Range { offset, length };
        let mut notes = self.lock();
        if notes.ranges.len() < MAX_RANGES && notes.known.insert(range) {
            notes.ranges.push(range);
        }
    }

    /// Ends the recording and hands it out.
    pub(crate) fn finish(&self) -> Vec<Range> {
        let mut notes = self.lock();
        self.is_on.store(false, Ordering::Relaxed);
        std::mem::take(&mut *notes).ranges
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_first_reads_are_kept_in_order_and_only_while_recording() {
        let recorder = Recorder::default();
        recorder.note(0, 512);
        assert!(recorder.start() && !recorder.start());
        for offset in [4096, 0, 4096] {
            recorder.note(offset, 512);
        }
        let offsets: Vec<u64> = recorder.finish().iter().map(|range| range.offset).collect();
        assert_eq!(offsets, [4096, 0]);
        recorder.note(8192, 512);
        assert_eq!(recorder.finish(), []);
    }
}
