//! Reading the log of a writable layer: records in the order of writing, the last of which wins.

use std::ops::ControlFlow;

use crate::error::{Damage, LayerError};
use crate::index::{Entry, Tree};
use crate::limits::{BLOCK_SIZE, FIRST_DATA_SECTOR, MAX_ENTRIES_PER_STACK};
use crate::storage::FileHandle;

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// What a log amounts to.
pub(super) struct Replayed {
    pub(super) tree: Tree,
    /// Bytes of the file, header included, that were understood.
    pub(super) kept: u64,
}

/// What the records of a log may point to, in sectors.
pub(super) struct Bounds {
    pub(super) disk_end: u64,
    pub(super) data_end: u64,
}

/// Replays the first `believed` bytes of the file.
///
/// A record that cannot be true ends the log: it was torn, or written by a host that lost its power. Within the
/// first `confirmed` bytes neither can be, so that there it is damage.
pub(super) fn replay(
    index: &FileHandle,
    believed: u64,
    confirmed: u64,
    bounds: &Bounds,
) -> Result<Replayed, LayerError> {
    let mut replayed = Replayed { tree: Tree::default(), kept: BLOCK_SIZE };
    for_each_chunk(index, BLOCK_SIZE, believed, |chunk| {
        for record in chunk.chunks_exact(Entry::SIZE) {
            let at = replayed.kept;
            let entry = Entry::from_bytes(record.try_into().expect("chunks have this size")).in_layer(0);
            // Padding may stand anywhere: foreign writers fill their buffers up with it.
            if !entry.is_padding() {
                if !entry.is_within(bounds.disk_end, FIRST_DATA_SECTOR, bounds.data_end) {
                    if at < confirmed {
                        return Err(LayerError::corrupt(&index.name, at, Damage::EntryTarget));
                    }
                    return Ok(ControlFlow::Break(()));
                }
                replayed.tree.insert(entry, |_| ());
            }
            replayed.kept += Entry::SIZE as u64;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(replayed)
}

/// CRC-32C of a part of the file.
pub(super) fn checksum(index: &FileHandle, from: u64, to: u64) -> Result<u32, LayerError> {
    let mut checksum = 0;
    for_each_chunk(index, from, to, |chunk| {
        checksum = crc32c::crc32c_append(checksum, chunk);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(checksum)
}

/// Reads whole records piece by piece, so that a long log costs little memory.
fn for_each_chunk(
    index: &FileHandle,
    from: u64,
    to: u64,
    mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, LayerError>,
) -> Result<(), LayerError> {
    let records = to.saturating_sub(from) / Entry::SIZE as u64;
    LayerError::limit(&index.name, "number of index records", records, MAX_ENTRIES_PER_STACK)?;
    let end = from + records * Entry::SIZE as u64;
    let mut at = from;
    let mut chunk = Vec::new();
    while at < end {
        chunk.resize(CHUNK.min(end - at) as usize, 0);
        index.read_exact(at, &mut chunk)?;
        if visit(&chunk)?.is_break() {
            break;
        }
        at += chunk.len() as u64;
    }
    Ok(())
}
