//! Giving back the space of data that nothing points to any more.

use super::WritableLayer;
use crate::error::LayerError;
use crate::limits::SECTOR_SIZE;

/// Ranges that are remembered; what comes beyond stays allocated until the layer is committed.
const MAX_REMEMBERED: usize = 16 << 10;

/// Ranges that are punched before others get their turn.
const BATCH: usize = 64;

/// A range of the data file that a later record replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeadRange {
    start: u64,
    sectors: u64,
    /// Length of the log with the record that replaced it.
    superseded_at: u64,
}

/// Dead ranges in the order of their death.
#[derive(Debug, Default)]
pub(super) struct DeadRanges(Vec<DeadRange>);

impl DeadRanges {
    pub(super) fn push(&mut self, start: u64, sectors: u64, superseded_at: u64) {
        if let Some(last) = self.0.last_mut() {
            if last.start + last.sectors == start {
                last.sectors += sectors;
                last.superseded_at = superseded_at;
                return;
            }
        }
        if self.0.len() < MAX_REMEMBERED {
            self.0.push(DeadRange { start, sectors, superseded_at });
        }
    }

    /// After a compaction all replacing records are within the new log.
    pub(super) fn superseded_by(&mut self, index_length: u64) {
        for range in &mut self.0 {
            range.superseded_at = index_length;
        }
    }

    /// Takes some ranges whose replacement is within the durable part of the log.
    fn take_durable(&mut self, durable: u64) -> Vec<DeadRange> {
        let count = self.0.iter().take(BATCH).take_while(|range| range.superseded_at <= durable).count();
        self.0.drain(..count).collect()
    }
}

impl WritableLayer {
    /// Gives back dead space that a flush has made safe to forget, and returns how many bytes.
    pub fn reclaim(&self) -> Result<u64, LayerError> {
        let mut bytes = 0;
        loop {
            // The mark must not move back while ranges are chosen by it.
            let marks = self.marks();
            let _gate = self.enter_alone();
            self.check_not_failed()?;
            let ranges = self.state_mut().dead.take_durable(marks.durable);
            if ranges.is_empty() {
                return Ok(bytes);
            }
            for range in ranges {
                let length = range.sectors * SECTOR_SIZE;
                self.data.punch(range.start * SECTOR_SIZE, length)?;
                bytes += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_what_is_durably_replaced_is_taken() {
        let mut dead = DeadRanges::default();
        dead.push(8, 4, 4112);
        dead.push(12, 4, 4128);
        dead.push(40, 1, 4144);
        assert_eq!(dead.take_durable(4112), []);
        assert_eq!(
            dead.take_durable(4128),
            [DeadRange { start: 8, sectors: 8, superseded_at: 4128 }],
            "ranges that touch become one, as late as the latest"
        );
        dead.superseded_by(4096);
        assert_eq!(dead.take_durable(4096).len(), 1);
    }

    #[test]
    fn test_memory_of_dead_ranges_is_bounded() {
        let mut dead = DeadRanges::default();
        for range in 0..2 * MAX_REMEMBERED as u64 {
            dead.push(range * 2, 1, 4096);
        }
        assert_eq!(dead.0.len(), MAX_REMEMBERED);
    }
}
