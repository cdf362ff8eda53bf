//! The seekable compressed container. It wraps any bytes; here they are those of a sealed layer.

mod codec;
mod jump_table;
mod reader;
mod superblock;
mod writer;

pub use codec::Compression;
pub use reader::ZfileReader;
pub(crate) use superblock::MAGIC;
pub use writer::{ZfileOptions, ZfileWriter};

/// The register that the checksum of a block starts with.
const BLOCK_SEED: u32 = 100_007;

/// Bytes of the checksum behind a block.
const CHECKSUM_SIZE: usize = 4;
