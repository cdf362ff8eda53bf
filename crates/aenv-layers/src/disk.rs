//! A disk that can be written: a writable layer over a stack. Restacking changes what it consists of, never what it
//! reads.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::LayerError;
use crate::extent::Extent;
use crate::sealed::SealedLayer;
use crate::stack::Stack;
use crate::view::{Piece, PieceList, View};
use crate::writable::WritableLayer;

/// A writable disk. All of it can be used from many threads at once.
pub struct Disk {
    name: Arc<str>,
    levels: RwLock<Arc<Levels>>,
}

/// What the disk consists of at one moment.
#[derive(Clone)]
struct Levels {
    /// The layer that takes writes, then those that were frozen and are not yet sealed, newest first.
    writable: Vec<Arc<WritableLayer>>,
    base: Arc<Stack>,
}

impl Disk {
    /// A disk whose writes go to `top`. The stack may be shared with other disks.
    pub fn new(name: &str, top: Arc<WritableLayer>, base: Arc<Stack>) -> Self {
        let levels = Levels { writable: vec![top], base };
        Self { name: Arc::from(name), levels: RwLock::new(Arc::new(levels)) }
    }

    /// Puts frozen, unsealed layers under the writable one, newest first: what a crash may leave to be put together.
    pub fn with_frozen(
        name: &str,
        top: Arc<WritableLayer>,
        frozen: Vec<Arc<WritableLayer>>,
        base: Arc<Stack>,
    ) -> Self {
        for layer in &frozen {
            layer.freeze();
        }
        let mut writable = vec![top];
        writable.extend(frozen);
        let levels = Levels { writable, base };
        Self { name: Arc::from(name), levels: RwLock::new(Arc::new(levels)) }
    }

    /// The layer that takes writes.
    pub fn top(&self) -> Arc<WritableLayer> {
        Arc::clone(self.current().top())
    }

    /// The sealed layers at the bottom.
    pub fn base(&self) -> Arc<Stack> {
        Arc::clone(&self.current().base)
    }

    /// Writes whole sectors.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        // Held until the write is done, so that a restack divides writes cleanly into before and after.
        self.hold().top().write(offset, bytes)
    }

    /// Makes whole sectors read as zeros.
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), LayerError> {
        self.hold().top().zero(offset, length)
    }

    /// Grows the disk; what is new reads as zeros.
    pub fn grow(&self, virtual_size: u64) -> Result<(), LayerError> {
        self.hold().top().grow(virtual_size)
    }

    /// Makes everything durable that was acknowledged before the call, in frozen layers too.
    pub fn flush(&self) -> Result<(), LayerError> {
        let levels = self.current();
        levels.writable.iter().rev().try_for_each(|layer| layer.flush())
    }

    /// Lets writes go to `top` from now on and freezes the layer that took them so far, which is returned.
    ///
    /// Takes as long as the writes under way. The frozen layer is the state of the disk at this moment; seal it in
    /// the background and hand it to `adopt`. The caller must have recorded durably that the disk now consists of
    /// the old layers and `top`.
    pub fn restack(&self, top: Arc<WritableLayer>) -> Result<Arc<WritableLayer>, LayerError> {
        let mut held = self.hold_alone();
        let old = Arc::clone(held.top());
        if top.virtual_size() < old.virtual_size() {
            return Err(LayerError::Shrinking {
                layer: Arc::clone(top.layer_name()),
                size: old.virtual_size(),
                requested: top.virtual_size(),
            });
        }
        old.freeze();
        let mut levels = Levels::clone(&held);
        levels.writable.insert(0, top);
        *held = Arc::new(levels);
        Ok(old)
    }

    /// Replaces the oldest frozen layer by its sealed form, and returns the new base.
    pub fn adopt(
        &self,
        frozen: &Arc<WritableLayer>,
        sealed: Arc<SealedLayer>,
    ) -> Result<Arc<Stack>, LayerError> {
        let base = self.current().base.with_top(sealed)?;
        let base = Arc::new(base);
        let mut held = self.hold_alone();
        let mut levels = Levels::clone(&held);
        let is_oldest = levels.writable.len() > 1
            && levels.writable.last().is_some_and(|oldest| Arc::ptr_eq(oldest, frozen));
        if !is_oldest {
            return Err(LayerError::OutOfTurn { layer: Arc::clone(frozen.layer_name()) });
        }
        levels.writable.pop();
        levels.base = Arc::clone(&base);
        *held = Arc::new(levels);
        Ok(base)
    }

    fn current(&self) -> Arc<Levels> {
        Arc::clone(&self.hold())
    }

    // A list of layers is replaced as a whole, so that a panic elsewhere cannot leave half of one.
    fn hold(&self) -> RwLockReadGuard<'_, Arc<Levels>> {
        self.levels.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_alone(&self) -> RwLockWriteGuard<'_, Arc<Levels>> {
        self.levels.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Levels {
    fn top(&self) -> &Arc<WritableLayer> {
        &self.writable[0]
    }

    fn read(&self, level: usize, extent: Extent, buffer: &mut [u8]) -> Result<(), LayerError> {
        match self.writable.get(level) {
            Some(layer) => layer.read_extent(extent, buffer, &|gap, bytes| self.read(level + 1, gap, bytes)),
            None => self.base.read_extent(extent, buffer),
        }
    }

    fn list_pieces(&self, level: usize, extent: Extent, pieces: &mut PieceList) {
        match self.writable.get(level) {
            Some(layer) => {
                layer.list_pieces(extent, pieces, &|gap, pieces| self.list_pieces(level + 1, gap, pieces))
            }
            None => self.base.list_pieces(extent, pieces),
        }
    }
}

impl View for Disk {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn size(&self) -> u64 {
        self.current().top().virtual_size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        let levels = self.current();
        let size = levels.top().virtual_size();
        let extent = Extent::checked(&self.name, offset, buffer.len() as u64, size)?;
        levels.read(0, extent, buffer)
    }

    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
        let levels = self.current();
        let extent = Extent::checked(&self.name, offset, length, levels.top().virtual_size())?;
        let mut pieces = PieceList::default();
        levels.list_pieces(0, extent, &mut pieces);
        Ok(pieces.into_vec())
    }
}
