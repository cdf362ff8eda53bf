//! Reading the log of a writable layer: records in the order of writing, the last of which wins.

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

/// Replays the first `believed` bytes of the file.
///
/// A record that cannot be true ends the log: it was torn, or written by a host that lost its power. Within the
/// first `confirmed` bytes neither can be, so that there it is damage.
pub(super) fn replay(
    index: &FileHandle,
    believed: u64,
    confirmed: u64,
    disk_end: u64,
    data_end: u64,
) -> Result<Replayed, LayerError> {
    let record_size = Entry::SIZE as u64;
    let records = believed.saturating_sub(BLOCK_SIZE) / record_size;
    LayerError::limit(&index.name, "number of index records", records, MAX_ENTRIES_PER_STACK)?;
    let end = BLOCK_SIZE + records * record_size;
    let mut tree = Tree::default();
    let mut at = BLOCK_SIZE;
    let mut chunk = Vec::new();
    while at < end {
        chunk.resize(CHUNK.min(end - at) as usize, 0);
        index.read_exact(at, &mut chunk)?;
        for record in chunk.chunks_exact(Entry::SIZE) {
            let entry = Entry::from_bytes(record.try_into().expect("chunks have this size")).in_layer(0);
            // Padding may stand anywhere: foreign writers fill their buffers up with it.
            if !entry.is_padding() {
                if !entry.is_within(disk_end, FIRST_DATA_SECTOR, data_end) {
                    if at < confirmed {
                        return Err(LayerError::corrupt(&index.name, at, Damage::EntryTarget));
                    }
                    return Ok(Replayed { tree, kept: at });
                }
                tree.insert(entry, |_| ());
            }
            at += record_size;
        }
    }
    Ok(Replayed { tree, kept: at })
}
