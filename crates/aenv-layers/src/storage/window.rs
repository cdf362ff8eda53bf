//! A part of a source, seen as a source of its own.

use std::io;
use std::sync::Arc;

use super::ReadAt;

/// The bytes `[offset, offset + length)` of another source.
pub(crate) struct Window {
    source: Arc<dyn ReadAt>,
    offset: u64,
    length: u64,
}

impl Window {
    pub(crate) fn new(source: Arc<dyn ReadAt>, offset: u64, length: u64) -> Self {
        Self { source, offset, length }
    }
}

impl ReadAt for Window {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.length.saturating_sub(offset);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        self.source.read_at(self.offset + offset, &mut buffer[..count])
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn evict(&self, offset: u64, length: u64) {
        self.source.evict(self.offset + offset, length);
    }
}
