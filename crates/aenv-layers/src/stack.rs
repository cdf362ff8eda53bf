//! Sealed layers one over the other, with one merged index. Immutable: a new layer makes a new stack.

use std::sync::Arc;

use crate::error::LayerError;
use crate::extent::Extent;
use crate::index::{overlapping, overlay, overlay_all, Entry};
use crate::limits::{MAX_ENTRIES_PER_STACK, MAX_LAYERS, SECTOR_SIZE};
use crate::sealed::SealedLayer;
use crate::view::{Content, Piece, PieceList, View};

/// A read-only disk made of layers. Share it between disks with an `Arc`: the index is its only cost.
pub struct Stack {
    name: Arc<str>,
    layers: Vec<Arc<SealedLayer>>,
    entries: Vec<Entry>,
    size: u64,
}

impl Stack {
    /// Stacks layers, the lowest first. No layer at all is an empty disk of no size.
    pub fn new(name: &str, layers: Vec<Arc<SealedLayer>>) -> Result<Self, LayerError> {
        let name = Arc::from(name);
        check_limits(&name, &layers)?;
        let indices: Vec<&[Entry]> = layers.iter().map(|layer| layer.entries()).collect();
        let entries = overlay_all(&indices);
        let size = layers.iter().rev().find_map(|layer| layer.virtual_size()).unwrap_or(0);
        Ok(Self { name, layers, entries, size })
    }

    /// This stack with one more layer on top. Only the new index is merged.
    pub fn with_top(&self, layer: Arc<SealedLayer>) -> Result<Self, LayerError> {
        let mut layers = self.layers.clone();
        layers.push(layer);
        check_limits(&self.name, &layers)?;
        let number = (layers.len() - 1) as u8;
        let top = &layers[layers.len() - 1];
        let numbered: Vec<Entry> = top.entries().iter().map(|entry| entry.in_layer(number)).collect();
        let entries = overlay(&numbered, &self.entries);
        let size = top.virtual_size().unwrap_or(self.size);
        Ok(Self { name: Arc::clone(&self.name), layers, entries, size })
    }

    /// The layers, the lowest first.
    pub fn layers(&self) -> &[Arc<SealedLayer>] {
        &self.layers
    }

    /// The merged index, sorted and disjoint.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Reads sectors that may lie behind the end of the disk, where a larger disk on top sees zeros.
    pub(crate) fn read_extent(&self, extent: Extent, buffer: &mut [u8]) -> Result<(), LayerError> {
        let visible = Extent { length: extent.length.min(self.sectors_behind(extent.start)), ..extent };
        let mut at = extent.start;
        let mut rest = buffer;
        for entry in overlapping(&self.entries, visible) {
            let (gap, behind) = rest.split_at_mut(((entry.start() - at) * SECTOR_SIZE) as usize);
            let (bytes, behind) = behind.split_at_mut((entry.length() * SECTOR_SIZE) as usize);
            gap.fill(0);
            if entry.is_zeroed() {
                bytes.fill(0);
            } else {
                self.layers[entry.layer()].read_data(entry, bytes)?;
            }
            at = entry.end();
            rest = behind;
        }
        rest.fill(0);
        Ok(())
    }

    /// Adds the pieces of an extent that may lie behind the end of the disk.
    pub(crate) fn list_pieces(&self, extent: Extent, pieces: &mut PieceList) {
        let visible = Extent { length: extent.length.min(self.sectors_behind(extent.start)), ..extent };
        let mut at = extent.start;
        for entry in overlapping(&self.entries, visible) {
            pieces.push(Extent { start: at, length: entry.start() - at }, Content::Hole);
            let content = if entry.is_zeroed() { Content::Zeroed } else { Content::Data };
            pieces.push(entry.extent(), content);
            at = entry.end();
        }
        pieces.push(Extent { start: at, length: extent.end() - at }, Content::Hole);
    }

    fn sectors_behind(&self, start: u64) -> u64 {
        (self.size / SECTOR_SIZE).saturating_sub(start)
    }
}

impl View for Stack {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        let extent = Extent::checked(&self.name, offset, buffer.len() as u64, self.size)?;
        self.read_extent(extent, buffer)
    }

    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
        let extent = Extent::checked(&self.name, offset, length, self.size)?;
        let mut pieces = PieceList::default();
        self.list_pieces(extent, &mut pieces);
        Ok(pieces.into_vec())
    }
}

fn check_limits(name: &Arc<str>, layers: &[Arc<SealedLayer>]) -> Result<(), LayerError> {
    LayerError::limit(name, "number of layers", layers.len() as u64, MAX_LAYERS as u64)?;
    // Laying one index over another can split entries, so that the result may be twice the sum.
    let entries: u64 = layers.iter().map(|layer| layer.entries().len() as u64).sum();
    LayerError::limit(name, "number of merged index entries", entries, MAX_ENTRIES_PER_STACK / 2)
}
