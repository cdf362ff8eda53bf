//! Upper bounds. Layers come from strangers: what they claim is compared with these before anything is allocated.

/// Bytes of a sector, the unit of every index.
pub const SECTOR_SIZE: u64 = 512;

/// Bytes of the header and of the trailer of a layer; data begins behind the header.
pub(crate) const BLOCK_SIZE: u64 = 4096;

/// The first sector of data in a file.
pub(crate) const FIRST_DATA_SECTOR: u64 = BLOCK_SIZE / SECTOR_SIZE;

/// The longest run that one index entry can describe.
pub const MAX_RUN_SECTORS: u64 = (1 << 14) - 1;

/// Runs are joined only while the result stays below the maximum, as the reference does.
pub(crate) const JOINED_RUN_SECTORS: u64 = MAX_RUN_SECTORS - 1;

/// Sectors of the largest disk that an index can address.
pub(crate) const MAX_SECTORS: u64 = 1 << 50;

/// Sectors of the largest file that an index can address.
pub(crate) const MAX_FILE_SECTORS: u64 = 1 << 55;

/// Index entries of one sealed layer, padding included.
pub const MAX_ENTRIES_PER_LAYER: u64 = 1_000_000;

/// Entries of a merged index, and records of the log of a writable layer.
pub const MAX_ENTRIES_PER_STACK: u64 = 128_000_000;

/// Layers of a stack: the number of a layer in an index has eight bits, and one belongs to the writable layer.
pub const MAX_LAYERS: usize = 255;

/// Entries by which the index of a committed layer is padded.
pub(crate) const INDEX_PADDING: u64 = 256;

/// Blocks of one compressed layer.
pub(crate) const MAX_COMPRESSED_BLOCKS: u64 = 1 << 28;

/// What an opener is willing to accept from a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest virtual disk, in bytes.
    pub virtual_size: u64,
    /// Most blocks of a compressed layer; each costs two bytes of memory.
    pub compressed_blocks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { virtual_size: 16 << 40, compressed_blocks: MAX_COMPRESSED_BLOCKS }
    }
}
