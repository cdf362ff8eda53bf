//! How a blob is divided into chunks: all of one size, the last one shorter.

use std::ops::Range;

/// A blob of 16 TiB has so many chunks of 1 MiB; the state of each costs 8 bytes of memory.
pub(crate) const MAX_CHUNKS: u64 = 1 << 24;
pub(crate) const SMALLEST_CHUNK: u32 = 4 << 10;
pub(crate) const LARGEST_CHUNK: u32 = 16 << 20;

/// The division of one blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    size: u64,
    chunk_bytes: u32,
}

impl Geometry {
    /// None when the blob would have no chunk or too many, or the chunk size is not a sensible power of two.
    pub(crate) fn new(size: u64, chunk_bytes: u32) -> Option<Self> {
        let is_sensible =
            chunk_bytes.is_power_of_two() && (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(&chunk_bytes);
        let is_countable = size > 0 && is_sensible && size.div_ceil(u64::from(chunk_bytes)) <= MAX_CHUNKS;
        is_countable.then_some(Self { size, chunk_bytes })
    }

    pub(crate) fn size(self) -> u64 {
        self.size
    }

    pub(crate) fn chunk_bytes(self) -> u32 {
        self.chunk_bytes
    }

    pub(crate) fn count(self) -> u32 {
        // At most MAX_CHUNKS, as checked when it was made.
        self.size.div_ceil(u64::from(self.chunk_bytes)) as u32
    }

    /// The chunk that holds a byte of the blob.
    pub(crate) fn chunk_of(self, offset: u64) -> u32 {
        (offset / u64::from(self.chunk_bytes)) as u32
    }

    pub(crate) fn start(self, chunk: u32) -> u64 {
        u64::from(chunk) * u64::from(self.chunk_bytes)
    }

    pub(crate) fn length(self, chunk: u32) -> u64 {
        let start = self.start(chunk);
        (start + u64::from(self.chunk_bytes)).min(self.size) - start
    }

    /// The bytes of a run of chunks.
    pub(crate) fn bytes(self, chunks: Range<u32>) -> Range<u64> {
        self.start(chunks.start)..self.start(chunks.end).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_is_short() {
        let geometry = Geometry::new(10_000, 4096).unwrap();
        assert_eq!((geometry.count(), geometry.length(0), geometry.length(2)), (3, 4096, 1808));
        assert_eq!((geometry.chunk_of(4095), geometry.chunk_of(8192)), (0, 2));
        assert_eq!(geometry.bytes(1..3), 4096..10_000);
    }

    #[test]
    fn senseless_divisions_are_none() {
        for (size, chunk_bytes) in [(0, 4096), (1, 0), (1, 5000), (1, 2048), (1, 32 << 20), (u64::MAX, 4096)]
        {
            assert_eq!(Geometry::new(size, chunk_bytes), None);
        }
    }
}
