//! Making an empty writable layer.

use std::sync::Arc;

use super::open::Opened;
use super::replay::Replayed;
use super::{NewLayer, PairLocation, WritableLayer};
use crate::error::{LayerError, Operation};
use crate::index::Tree;
use crate::limits::{Limits, BLOCK_SIZE, FIRST_DATA_SECTOR, SECTOR_SIZE};
use crate::lsmt::{Role, Superblock, Watermark, SLOT_SIZE};
use crate::storage::{failed, FileHandle};

impl WritableLayer {
    /// Creates both files, which must not exist. They are durable when this returns.
    pub fn create(name: &str, location: PairLocation, new: NewLayer) -> Result<Self, LayerError> {
        let layer = Arc::from(name);
        let limits = Limits::default();
        LayerError::limit(&layer, "virtual size", new.virtual_size, limits.virtual_size)?;
        if new.virtual_size % SECTOR_SIZE != 0 {
            return Err(LayerError::Misaligned { layer, offset: 0, length: new.virtual_size });
        }
        let superblock = Superblock {
            virtual_size: new.virtual_size,
            id: new.id,
            parent: new.parent,
            ..Superblock::default()
        };
        let mark = Watermark::of_durable(1, BLOCK_SIZE, BLOCK_SIZE, new.boot);
        let (data, index) = create_files(&layer, &location, &superblock, &mark)?;
        Ok(Self::from_opened(Opened {
            name: layer,
            location,
            policy: new.policy,
            boot: new.boot,
            limits,
            virtual_size: new.virtual_size,
            superblock,
            data,
            data_end: FIRST_DATA_SECTOR,
            index,
            replayed: Replayed { tree: Tree::default(), kept: BLOCK_SIZE },
            recorded_end: FIRST_DATA_SECTOR,
            mark,
        }))
    }
}

/// Makes both files or none.
fn create_files(
    layer: &Arc<str>,
    location: &PairLocation,
    superblock: &Superblock,
    mark: &Watermark,
) -> Result<(FileHandle, FileHandle), LayerError> {
    let directory = &location.directory;
    let create = |file: &str| {
        let file = directory.create(file).map_err(|error| failed(layer, Operation::Create, 0, error))?;
        Ok::<_, LayerError>(FileHandle::new(Arc::clone(layer), file))
    };
    let data = create(&location.data)?;
    let outcome = create(&location.index).and_then(|index| {
        let filled = fill_files(&data, &index, superblock, mark)
            .and_then(|()| directory.sync().map_err(|error| failed(layer, Operation::Sync, 0, error)));
        if filled.is_err() {
            // The first failure is the one to report.
            let _ = directory.remove(&location.index);
        }
        filled.map(|()| index)
    });
    if outcome.is_err() {
        let _ = directory.remove(&location.data);
    }
    outcome.map(|index| (data, index))
}

/// The mark is durable before the first write: without one, records would be believed after a crash of the host.
fn fill_files(
    data: &FileHandle,
    index: &FileHandle,
    superblock: &Superblock,
    mark: &Watermark,
) -> Result<(), LayerError> {
    data.write_all(0, &superblock.to_block(Role::DataHeader))?;
    index.write_all(0, &index_header(superblock, mark))?;
    data.sync()?;
    index.sync()
}

/// The first block of an index file, with a durability mark in its padding.
pub(super) fn index_header(superblock: &Superblock, mark: &Watermark) -> [u8; BLOCK_SIZE as usize] {
    let superblock = Superblock { index_offset: BLOCK_SIZE, ..superblock.clone() };
    let mut block = superblock.to_block(Role::IndexHeader);
    let slot = mark.slot_offset() as usize;
    block[slot..slot + SLOT_SIZE].copy_from_slice(&mark.to_slot());
    block
}
