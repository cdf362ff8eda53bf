//! One index entry: a run of virtual sectors and where it lives. Sixteen bytes on disk and in memory.

use crate::extent::Extent;
use crate::limits::{JOINED_RUN_SECTORS, MAX_FILE_SECTORS, MAX_RUN_SECTORS, MAX_SECTORS};

const START_BITS: u32 = 50;
const START_MASK: u64 = (1 << START_BITS) - 1;
const TARGET_MASK: u64 = MAX_FILE_SECTORS - 1;
const ZEROED: u64 = 1 << 55;
const LAYER_SHIFT: u32 = 56;

/// A run of virtual sectors that one layer defines, either by data in its file or as zeros.
///
/// Invariant: entries made by the constructors cover 1 to `MAX_RUN_SECTORS` sectors. `from_bytes` promises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    range: u64,
    place: u64,
}

impl Entry {
    /// Size on disk.
    pub(crate) const SIZE: usize = 16;

    /// What fills the index of a committed layer up; readers skip it.
    pub(crate) const PADDING: Self = Self { range: START_MASK, place: 0 };

    /// A run whose data begins at sector `target` of the file.
    pub(crate) fn with_data(start: u64, length: u64, target: u64) -> Self {
        debug_assert!((1..=MAX_RUN_SECTORS).contains(&length) && start + length <= MAX_SECTORS);
        debug_assert!(target <= TARGET_MASK);
        Self { range: start | length << START_BITS, place: target }
    }

    /// A run of zeros; `target` is informative and never zero, because the reference refuses that.
    pub(crate) fn zeroed(start: u64, length: u64, target: u64) -> Self {
        let mut entry = Self::with_data(start, length, target);
        entry.place |= ZEROED;
        entry
    }

    /// Unpacks the bytes of an index, whatever they are.
    pub(crate) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { range: both as u64, place: (both >> 64) as u64 }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        (u128::from(self.range) | u128::from(self.place) << 64).to_le_bytes()
    }

    pub(crate) fn is_padding(self) -> bool {
        self.start() == START_MASK
    }

    /// The first virtual sector.
    pub fn start(self) -> u64 {
        self.range & START_MASK
    }

    /// How many sectors.
    pub fn length(self) -> u64 {
        self.range >> START_BITS
    }

    /// The first virtual sector behind the run.
    pub fn end(self) -> u64 {
        self.start() + self.length()
    }

    /// The sectors that the run covers.
    pub fn extent(self) -> Extent {
        Extent { start: self.start(), length: self.length() }
    }

    /// The first sector in the file of the layer.
    pub fn target(self) -> u64 {
        self.place & TARGET_MASK
    }

    /// The first sector of the file behind the data; a run of zeros has none.
    pub(crate) fn target_end(self) -> u64 {
        if self.is_zeroed() {
            self.target()
        } else {
            self.target() + self.length()
        }
    }

    /// Whether the run reads as zeros and owns no data.
    pub fn is_zeroed(self) -> bool {
        self.place & ZEROED != 0
    }

    /// The position in the stack of the layer that defines the run, from the bottom.
    pub fn layer(self) -> usize {
        (self.place >> LAYER_SHIFT) as usize
    }

    pub(crate) fn in_layer(self, layer: u8) -> Self {
        let place = self.place & !(0xff << LAYER_SHIFT) | u64::from(layer) << LAYER_SHIFT;
        Self { place, ..self }
    }

    /// The part between two virtual sectors. The target of data moves with the front, that of zeros stays.
    pub(crate) fn clipped(self, from: u64, to: u64) -> Self {
        let start = self.start().max(from);
        let length = self.end().min(to) - start;
        let moved = if self.is_zeroed() { 0 } else { start - self.start() };
        Self { range: start | length << START_BITS, place: self.place + moved }
    }

    /// Whether `next` continues this run on the disk and in the file, and one entry can hold both.
    pub(crate) fn is_continued_by(self, next: Self) -> bool {
        self.end() == next.start()
            && self.target_end() == next.target()
            && (self.place ^ next.place) & !TARGET_MASK == 0
            && self.length() + next.length() <= JOINED_RUN_SECTORS
    }

    pub(crate) fn extended_by(self, sectors: u64) -> Self {
        Self { range: self.range + (sectors << START_BITS), ..self }
    }

    /// Whether a record may be believed: it covers sectors of the disk and points into the data before `data_end`.
    pub(crate) fn is_within(self, disk_end: u64, data_start: u64, data_end: u64) -> bool {
        self.length() > 0
            && self.end() <= disk_end
            && self.target() >= data_start
            && self.target_end() <= data_end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn test_packing_is_inverse_on_the_whole_domain(
            start in 0..MAX_SECTORS - MAX_RUN_SECTORS,
            length in 1..=MAX_RUN_SECTORS,
            target in 0..MAX_FILE_SECTORS,
            zeroed: bool,
            layer: u8,
        ) {
            let make = if zeroed { Entry::zeroed } else { Entry::with_data };
            let entry = Entry::from_bytes(make(start, length, target).in_layer(layer).to_bytes());
            prop_assert_eq!((entry.start(), entry.length()), (start, length));
            prop_assert_eq!((entry.target(), entry.is_zeroed()), (target, zeroed));
            prop_assert_eq!(entry.layer(), usize::from(layer));
        }

        #[test]
        fn test_any_bytes_pack_back_to_themselves(bytes: [u8; 16]) {
            prop_assert_eq!(Entry::from_bytes(bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn test_a_clipped_front_moves_data_and_not_zeros() {
        assert_eq!(Entry::with_data(10, 8, 100).clipped(12, 15), Entry::with_data(12, 3, 102));
        assert_eq!(Entry::zeroed(10, 8, 100).clipped(12, 99), Entry::zeroed(12, 6, 100));
    }

    #[test]
    fn test_runs_join_below_the_maximum_only() {
        let first = Entry::with_data(0, 16_381, 8);
        assert!(first.is_continued_by(Entry::with_data(16_381, 1, 16_389)));
        assert!(!first.is_continued_by(Entry::with_data(16_381, 2, 16_389)));
        assert!(!first.is_continued_by(Entry::zeroed(16_381, 1, 16_389)));
        assert!(!first.is_continued_by(Entry::with_data(16_381, 1, 16_389).in_layer(1)));
        assert!(Entry::zeroed(0, 1, 8).is_continued_by(Entry::zeroed(1, 1, 8)));
    }
}
