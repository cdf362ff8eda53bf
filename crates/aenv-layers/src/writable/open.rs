//! Opening a writable layer after a clean close, a crash of the program, a crash of the host, or a foreign program.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use super::reclaim::DeadRanges;
use super::replay::{checksum, replay, Bounds, Replayed};
use super::{Marks, OpenLayer, PairLocation, State, WritableLayer, WritePolicy};
use crate::error::{Damage, LayerError, Operation};
use crate::limits::{Limits, BLOCK_SIZE, FIRST_DATA_SECTOR, SECTOR_SIZE};
use crate::lsmt::{newest, Role, Superblock, Watermark};
use crate::storage::{failed, BootId, FileHandle};

/// Everything that a layer is made of once its files are in order.
pub(super) struct Opened {
    pub(super) name: Arc<str>,
    pub(super) location: PairLocation,
    pub(super) policy: WritePolicy,
    pub(super) boot: BootId,
    pub(super) limits: Limits,
    pub(super) virtual_size: u64,
    pub(super) superblock: Superblock,
    pub(super) data: FileHandle,
    pub(super) data_end: u64,
    pub(super) index: FileHandle,
    pub(super) replayed: Replayed,
    pub(super) recorded_end: u64,
    pub(super) mark: Watermark,
}

/// How far the log may be believed.
struct Belief {
    /// Bytes of the index file to replay.
    believed: u64,
    /// Bytes of the index file that cannot be torn: a record there that makes no sense is damage.
    confirmed: u64,
    /// Whether the log has to be made durable and marked before the first write.
    must_claim: bool,
}

impl WritableLayer {
    /// Opens an existing pair of files and repairs what a crash left behind.
    pub fn open(name: &str, location: PairLocation, options: OpenLayer) -> Result<Self, LayerError> {
        let layer: Arc<str> = Arc::from(name);
        let open = |file: &str| {
            let file =
                location.directory.open(file).map_err(|error| failed(&layer, Operation::Open, 0, error))?;
            Ok::<_, LayerError>(FileHandle::new(Arc::clone(&layer), file))
        };
        let data = open(&location.data)?;
        let index = open(&location.index)?;
        let (superblock, mark) = read_headers(&data, &index)?;
        check_size(&layer, &superblock, &options.limits)?;
        let virtual_size = match superblock.virtual_size {
            0 => options.inherited_size,
            size => size,
        };
        let data_length = data.length()?;
        let index_length = index.length()?;
        let belief = decide(&index, mark.as_ref(), options.boot, index_length, data_length)?;
        let bounds = Bounds { disk_end: virtual_size / SECTOR_SIZE, data_end: data_length / SECTOR_SIZE };
        let replayed = replay(&index, belief.believed, belief.confirmed, &bounds)?;
        let mark = match mark {
            Some(mark) if !belief.must_claim && replayed.kept == index_length => {
                // The next mark must not fall back behind flushes that the program before us acknowledged.
                index.sync()?;
                Watermark { confirmed_length: replayed.kept, ..mark }
            }
            _ => {
                let sequence = mark.map_or(0, |mark| mark.sequence).saturating_add(1);
                let data_length = bounds.data_end.max(FIRST_DATA_SECTOR) * SECTOR_SIZE;
                let mark = Watermark::of_durable(sequence, replayed.kept, data_length, options.boot);
                claim(&data, &index, &mark)?;
                mark
            }
        };
        location.directory.sync().map_err(|error| failed(&layer, Operation::Sync, 0, error))?;
        Ok(Self::from_opened(Opened {
            name: Arc::clone(&layer),
            location,
            policy: options.policy,
            boot: options.boot,
            limits: options.limits,
            virtual_size,
            superblock,
            data,
            data_end: data_length.div_ceil(SECTOR_SIZE).max(FIRST_DATA_SECTOR),
            index,
            replayed,
            recorded_end: bounds.data_end.max(FIRST_DATA_SECTOR),
            mark,
        }))
    }

    pub(super) fn from_opened(opened: Opened) -> Self {
        Self {
            name: opened.name,
            location: opened.location,
            policy: opened.policy,
            boot: opened.boot,
            limits: opened.limits,
            data: opened.data,
            data_end: AtomicU64::new(opened.data_end),
            virtual_size: AtomicU64::new(opened.virtual_size),
            stored_size: AtomicU64::new(opened.superblock.virtual_size),
            identity: opened.superblock,
            // What an earlier program acknowledged may still wait for its flush.
            is_dirty: AtomicBool::new(true),
            is_frozen: AtomicBool::new(false),
            is_failed: AtomicBool::new(false),
            flushes_begun: AtomicU64::new(0),
            marks: Mutex::new(Marks {
                sequence: opened.mark.sequence,
                completed: 0,
                confirmed: opened.mark.confirmed_length,
                durable: 0,
            }),
            gate: RwLock::new(()),
            state: RwLock::new(State {
                index: opened.index,
                index_length: opened.replayed.kept,
                checksum: 0,
                tree: opened.replayed.tree,
                recorded_end: opened.recorded_end,
                dead: DeadRanges::default(),
            }),
        }
    }
}

/// Both headers must tell of the same layer. A growth that was interrupted shows in one of them.
fn read_headers(
    data: &FileHandle,
    index: &FileHandle,
) -> Result<(Superblock, Option<Watermark>), LayerError> {
    let damaged = |damage| LayerError::corrupt(&data.name, 0, damage);
    let mut block = [0; BLOCK_SIZE as usize];
    data.read_exact(0, &mut block)?;
    let mut superblock = Superblock::parse(&block, Role::DataHeader).map_err(damaged)?;
    if superblock.is_sparse {
        return Err(LayerError::unsupported(&data.name, "the sparse form of a writable layer"));
    }
    index.read_exact(0, &mut block)?;
    let of_index = Superblock::parse(&block, Role::IndexHeader).map_err(damaged)?;
    if of_index.index_offset != BLOCK_SIZE {
        return Err(damaged(Damage::IndexBounds));
    }
    if (of_index.id, of_index.parent) != (superblock.id, superblock.parent) {
        return Err(damaged(Damage::DifferentLayers));
    }
    superblock.virtual_size = superblock.virtual_size.max(of_index.virtual_size);
    Ok((superblock, newest(&block)))
}

fn decide(
    index: &FileHandle,
    mark: Option<&Watermark>,
    boot: BootId,
    index_length: u64,
    data_length: u64,
) -> Result<Belief, LayerError> {
    let Some(mark) = mark else {
        // A foreign program made these files; there is nothing to hold its records against.
        return Ok(Belief { believed: index_length, confirmed: 0, must_claim: true });
    };
    if index_length < mark.confirmed_length || data_length < mark.data_length {
        return Err(LayerError::corrupt(&index.name, index_length, Damage::LostData));
    }
    let was_continued = mark.is_closed && index_length > mark.index_length;
    if mark.boot == boot || was_continued {
        // The page cache survived, or a foreign program went on where we closed. A closed mark must not stay: a later
        // open would take our own records for foreign ones and believe them.
        return Ok(Belief {
            believed: index_length,
            confirmed: mark.confirmed_length,
            must_claim: mark.is_closed,
        });
    }
    let is_complete = index_length >= mark.index_length
        && checksum(index, mark.confirmed_length, mark.index_length)? == mark.records_checksum;
    // An incomplete flush was never acknowledged.
    let believed = if is_complete { mark.index_length } else { mark.confirmed_length };
    Ok(Belief { believed, confirmed: believed, must_claim: true })
}

/// Makes the log durable as it was understood, cuts the rest off, and marks it as ours in this life of the host.
fn claim(data: &FileHandle, index: &FileHandle, mark: &Watermark) -> Result<(), LayerError> {
    data.sync()?;
    index.set_length(mark.index_length)?;
    index.sync()?;
    index.write_all(mark.slot_offset(), &mark.to_slot())?;
    index.sync()
}

fn check_size(layer: &Arc<str>, superblock: &Superblock, limits: &Limits) -> Result<(), LayerError> {
    LayerError::limit(layer, "virtual size", superblock.virtual_size, limits.virtual_size)?;
    if superblock.virtual_size % SECTOR_SIZE != 0 {
        return Err(LayerError::corrupt(layer, 0, Damage::VirtualSize));
    }
    Ok(())
}
