//! Ranges of whole sectors on the virtual disk.

use std::sync::Arc;

use crate::error::LayerError;
use crate::limits::SECTOR_SIZE;

/// A range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first sector.
    pub start: u64,
    /// How many sectors.
    pub length: u64,
}

impl Extent {
    /// The first sector behind the range.
    pub fn end(self) -> u64 {
        self.start + self.length
    }

    /// The first byte of the range.
    pub fn offset(self) -> u64 {
        self.start * SECTOR_SIZE
    }

    /// Turns a range of bytes into sectors, refusing what is not aligned or lies outside of a disk of `size` bytes.
    pub(crate) fn checked(layer: &Arc<str>, offset: u64, length: u64, size: u64) -> Result<Self, LayerError> {
        if offset % SECTOR_SIZE != 0 || length % SECTOR_SIZE != 0 {
            return Err(LayerError::Misaligned { layer: Arc::clone(layer), offset, length });
        }
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(LayerError::OutOfRange { layer: Arc::clone(layer), offset, length, size });
        }
        Ok(Self { start: offset / SECTOR_SIZE, length: length / SECTOR_SIZE })
    }
}
