//! A sealed layer: an immutable file with a checked index. It knows nothing of the layers around it.

use std::sync::Arc;

use crate::container;
use crate::error::{Damage, LayerError};
use crate::index::{parse_sealed, Entry};
use crate::limits::{Limits, BLOCK_SIZE, MAX_ENTRIES_PER_LAYER, SECTOR_SIZE};
use crate::lsmt::{LayerId, Role, Superblock};
use crate::storage::{ReadAt, SourceHandle};

/// An open sealed layer. It is immutable: stacks share it, and its index, by reference counting.
pub struct SealedLayer {
    source: SourceHandle,
    trailer: Superblock,
    entries: Vec<Entry>,
}

impl SealedLayer {
    /// Opens a layer that may be compressed, or packed into an archive, or both. `name` is what errors call it.
    pub fn open(name: &str, source: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self, LayerError> {
        let source = container::strip_wrapping(name, source, limits)?;
        Self::open_raw(SourceHandle::new(Arc::from(name), source), limits)
    }

    fn open_raw(source: SourceHandle, limits: &Limits) -> Result<Self, LayerError> {
        let length = source.length()?;
        if length < 2 * BLOCK_SIZE {
            return Err(source.damaged(length, Damage::Truncated));
        }
        let trailer_offset = length - BLOCK_SIZE;
        read_block(&source, 0, Role::SealedHeader)?;
        let trailer = read_block(&source, trailer_offset, Role::Trailer)?;
        LayerError::limit(&source.name, "virtual size", trailer.virtual_size, limits.virtual_size)?;
        if trailer.virtual_size % SECTOR_SIZE != 0 {
            return Err(source.damaged(trailer_offset, Damage::VirtualSize));
        }
        let entries = read_index(&source, &trailer, trailer_offset)?;
        Ok(Self { source, trailer, entries })
    }

    /// A layer whose index was written a moment ago and need not be read back.
    pub(crate) fn from_parts(source: SourceHandle, trailer: Superblock, entries: Vec<Entry>) -> Self {
        Self { source, trailer, entries }
    }

    /// The name that the layer was opened under.
    pub fn name(&self) -> &Arc<str> {
        &self.source.name
    }

    /// The identifier that the layer carries.
    pub fn id(&self) -> LayerId {
        self.trailer.id
    }

    /// The identifier of the layer that it was made on. Informative only.
    pub fn parent(&self) -> LayerId {
        self.trailer.parent
    }

    /// The free text that the layer carries.
    pub fn tag(&self) -> &[u8] {
        &self.trailer.tag
    }

    /// The size of the virtual disk in bytes; none means that the layer below decides.
    pub fn virtual_size(&self) -> Option<u64> {
        Some(self.trailer.virtual_size).filter(|&size| size > 0)
    }

    /// The index, sorted and disjoint.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Reads the data of one run, or a part of it.
    pub(crate) fn read_data(&self, entry: Entry, buffer: &mut [u8]) -> Result<(), LayerError> {
        self.source.read_exact(entry.target() * SECTOR_SIZE, buffer)
    }

    /// Reads every byte that the index points to, so that checksums of a compressed layer are checked. `watcher`
    /// hears how many bytes were read and may end the work.
    pub fn verify(&self, watcher: crate::commit::Watcher<'_>) -> Result<(), LayerError> {
        let mut buffer = vec![0; crate::commit::COPY_SIZE];
        for entry in self.entries.iter().filter(|entry| !entry.is_zeroed()) {
            let mut at = entry.start();
            while at < entry.end() {
                let part = entry.clipped(at, entry.end().min(at + buffer.len() as u64 / SECTOR_SIZE));
                let bytes = &mut buffer[..(part.length() * SECTOR_SIZE) as usize];
                self.read_data(part, bytes)?;
                crate::commit::report(watcher, self.name(), bytes.len())?;
                at = part.end();
            }
        }
        Ok(())
    }
}

fn read_block(source: &SourceHandle, offset: u64, role: Role) -> Result<Superblock, LayerError> {
    let mut block = [0; BLOCK_SIZE as usize];
    source.read_exact(offset, &mut block)?;
    Superblock::parse(&block, role).map_err(|damage| source.damaged(offset, damage))
}

fn read_index(
    source: &SourceHandle,
    trailer: &Superblock,
    trailer_offset: u64,
) -> Result<Vec<Entry>, LayerError> {
    LayerError::limit(&source.name, "number of index entries", trailer.index_entries, MAX_ENTRIES_PER_LAYER)?;
    let offset = trailer.index_offset;
    let size = trailer.index_entries * Entry::SIZE as u64;
    if !(BLOCK_SIZE..=trailer_offset).contains(&offset)
        || offset % SECTOR_SIZE != 0
        || size > trailer_offset - offset
    {
        return Err(source.damaged(trailer_offset, Damage::IndexBounds));
    }
    // The size was compared with the limit and with the file, so that this allocation is bounded by both.
    let mut bytes = vec![0; size as usize];
    source.read_exact(offset, &mut bytes)?;
    parse_sealed(&bytes, offset).map_err(|(at, damage)| source.damaged(at, damage))
}
