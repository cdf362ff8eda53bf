//! Growing the virtual disk.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::WritableLayer;
use crate::error::LayerError;
use crate::limits::SECTOR_SIZE;
use crate::lsmt::Superblock;

impl WritableLayer {
    /// Grows the disk; what is new reads as zeros. Durable when this returns. An equal size is fine, a smaller is not.
    pub fn grow(&self, virtual_size: u64) -> Result<(), LayerError> {
        let marks = self.marks();
        let _gate = self.enter_alone();
        self.check_not_failed()?;
        if self.is_frozen() {
            return Err(LayerError::Frozen { layer: Arc::clone(&self.name) });
        }
        self.check_growth(virtual_size)?;
        let index = self.state().index.clone();
        let field = virtual_size.to_le_bytes();
        // An open takes the larger of both, so that no order of these can lose a growth that was acknowledged.
        self.data.write_all(Superblock::VIRTUAL_SIZE_OFFSET, &field)?;
        index.write_all(Superblock::VIRTUAL_SIZE_OFFSET, &field)?;
        self.sync_or_fail(|| self.data.sync())?;
        self.sync_or_fail(|| index.sync())?;
        drop(marks);
        self.stored_size.store(virtual_size, Ordering::Release);
        self.virtual_size.store(virtual_size, Ordering::Release);
        Ok(())
    }

    fn check_growth(&self, requested: u64) -> Result<(), LayerError> {
        let size = self.virtual_size();
        LayerError::limit(&self.name, "virtual size", requested, self.limits.virtual_size)?;
        if requested % SECTOR_SIZE != 0 {
            return Err(LayerError::Misaligned {
                layer: Arc::clone(&self.name),
                offset: 0,
                length: requested,
            });
        }
        if requested < size {
            return Err(LayerError::Shrinking { layer: Arc::clone(&self.name), size, requested });
        }
        Ok(())
    }
}
