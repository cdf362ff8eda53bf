//! Reading a writable layer, and what is below it.

use std::sync::Arc;

use super::WritableLayer;
use crate::error::LayerError;
use crate::extent::Extent;
use crate::index::Entry;
use crate::limits::SECTOR_SIZE;
use crate::view::{Content, Piece, PieceList, View};

/// Reads what the layer does not mention.
pub(crate) type Below<'a> = &'a dyn Fn(Extent, &mut [u8]) -> Result<(), LayerError>;

impl WritableLayer {
    /// Reads an extent of the disk; `below` fills what this layer does not mention.
    pub(crate) fn read_extent(
        &self,
        extent: Extent,
        buffer: &mut [u8],
        below: Below<'_>,
    ) -> Result<(), LayerError> {
        let gate = self.enter();
        let runs: Vec<Entry> = self.state().tree.overlapping(extent).collect();
        for run in &runs {
            let bytes = &mut buffer[byte_range(extent, run.extent())];
            if run.is_zeroed() {
                bytes.fill(0);
            } else {
                self.data.read_exact(run.target() * SECTOR_SIZE, bytes)?;
            }
        }
        // What is below may be far away; nothing that waits for the gate should wait for it.
        drop(gate);
        let mut at = extent.start;
        for (start, end) in
            runs.iter().map(|run| (run.start(), run.end())).chain([(extent.end(), extent.end())])
        {
            if at < start {
                let gap = Extent { start: at, length: start - at };
                below(gap, &mut buffer[byte_range(extent, gap)])?;
            }
            at = end;
        }
        Ok(())
    }

    /// Adds the pieces of an extent; `below` adds those that this layer does not mention.
    pub(crate) fn list_pieces(
        &self,
        extent: Extent,
        pieces: &mut PieceList,
        below: &dyn Fn(Extent, &mut PieceList),
    ) {
        let runs: Vec<Entry> = self.state().tree.overlapping(extent).collect();
        let mut at = extent.start;
        for run in runs {
            if at < run.start() {
                below(Extent { start: at, length: run.start() - at }, pieces);
            }
            let content = if run.is_zeroed() { Content::Zeroed } else { Content::Data };
            pieces.push(run.extent(), content);
            at = run.end();
        }
        if at < extent.end() {
            below(Extent { start: at, length: extent.end() - at }, pieces);
        }
    }
}

/// The layer alone: what it does not mention reads as zeros.
impl View for WritableLayer {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn size(&self) -> u64 {
        self.virtual_size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        let extent = Extent::checked(&self.name, offset, buffer.len() as u64, self.virtual_size())?;
        self.read_extent(extent, buffer, &|_, bytes| {
            bytes.fill(0);
            Ok(())
        })
    }

    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
        let extent = Extent::checked(&self.name, offset, length, self.virtual_size())?;
        let mut pieces = PieceList::default();
        self.list_pieces(extent, &mut pieces, &|gap, pieces| pieces.push(gap, Content::Hole));
        Ok(pieces.into_vec())
    }
}

/// Where a part of an extent lies in the buffer of the whole.
fn byte_range(whole: Extent, part: Extent) -> std::ops::Range<usize> {
    let start = ((part.start - whole.start) * SECTOR_SIZE) as usize;
    start..start + (part.length * SECTOR_SIZE) as usize
}
