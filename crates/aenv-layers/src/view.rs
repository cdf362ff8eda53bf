//! What can be read as a disk: a stack, a writable layer, or one over the other.

use std::sync::Arc;

use crate::error::LayerError;
use crate::extent::Extent;

/// What a part of a disk consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Some layer holds bytes for it.
    Data,
    /// Some layer says that it reads as zeros, hiding what is below.
    Zeroed,
    /// No layer mentions it; it reads as zeros.
    Hole,
}

/// A part of a disk with one kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The sectors.
    pub extent: Extent,
    /// What they consist of.
    pub content: Content,
}

/// A virtual disk that can be read.
///
/// An implementer promises that bytes within `size` read back as written, and refuses what is not whole sectors.
pub trait View: Send + Sync {
    /// The name that errors carry.
    fn name(&self) -> &Arc<str>;

    /// The size in bytes.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes at `offset`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError>;

    /// The pieces that make up a range of bytes, in order and without gaps.
    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError>;
}

/// Collects pieces in order: fills gaps with holes and joins neighbours of the same kind.
#[derive(Default)]
pub(crate) struct PieceList(Vec<Piece>);

impl PieceList {
    pub(crate) fn push(&mut self, extent: Extent, content: Content) {
        if extent.length == 0 {
            return;
        }
        if let Some(last) = self.0.last_mut() {
            if last.content == content && last.extent.end() == extent.start {
                last.extent.length += extent.length;
                return;
            }
        }
        self.0.push(Piece { extent, content });
    }

    pub(crate) fn into_vec(self) -> Vec<Piece> {
        self.0
    }
}
