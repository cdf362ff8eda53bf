//! Where each block lies. Two bytes of memory per block, and a position for every group of them.

use super::superblock::Superblock;
use super::{superblock, CHECKSUM_SIZE};
use crate::checksum::raw_crc32c;
use crate::error::{Damage, LayerError};
use crate::limits::Limits;
use crate::storage::SourceHandle;

/// Blocks that share a stored position.
const GROUP: usize = 64;

/// Entries that are read at a time.
const CHUNK: usize = 16 << 10;

/// Bytes of an entry in the file.
const ENTRY_SIZE: usize = 4;

#[derive(Debug)]
pub(super) struct JumpTable {
    group_starts: Vec<u64>,
    lengths: Vec<u16>,
}

impl JumpTable {
    /// Reads and checks the table that a header or trailer describes.
    pub(super) fn read(
        source: &SourceHandle,
        superblock: &Superblock,
        file_length: u64,
        limits: &Limits,
    ) -> Result<Self, LayerError> {
        check_bounds(source, superblock, file_length, limits)?;
        let mut table = Self::with_capacity(superblock.blocks as usize);
        let smallest = 1 + if superblock.has_checksums { CHECKSUM_SIZE as u32 } else { 0 };
        let mut position = superblock::SPACE as u64;
        let mut at = superblock.table_offset;
        let mut checksum = 0;
        let mut remaining = superblock.blocks as usize;
        let mut chunk = vec![0; CHUNK.min(remaining) * ENTRY_SIZE];
        while remaining > 0 {
            let count = CHUNK.min(remaining);
            let bytes = &mut chunk[..count * ENTRY_SIZE];
            source.read_exact(at, bytes)?;
            checksum = raw_crc32c(checksum, bytes);
            for (entry, packed) in bytes.chunks_exact(ENTRY_SIZE).enumerate() {
                let length = u32::from_le_bytes(packed.try_into().expect("chunks have this size"));
                let damaged = || source.damaged(at + (entry * ENTRY_SIZE) as u64, Damage::JumpTable);
                if length < smallest {
                    return Err(damaged());
                }
                table.push(position, u16::try_from(length).map_err(|_| damaged())?);
                position += u64::from(length);
            }
            at += bytes.len() as u64;
            remaining -= count;
        }
        if superblock.table_checksum.is_some_and(|wanted| wanted != checksum) {
            return Err(source.damaged(superblock.table_offset, Damage::Checksum));
        }
        if position != superblock.table_offset {
            return Err(source.damaged(superblock.table_offset, Damage::JumpTable));
        }
        Ok(table)
    }

    fn with_capacity(blocks: usize) -> Self {
        Self { group_starts: Vec::with_capacity(blocks.div_ceil(GROUP)), lengths: Vec::with_capacity(blocks) }
    }

    fn push(&mut self, position: u64, length: u16) {
        if self.lengths.len() % GROUP == 0 {
            self.group_starts.push(position);
        }
        self.lengths.push(length);
    }

    /// The stored length of a block, checksum included.
    pub(super) fn length(&self, block: usize) -> usize {
        usize::from(self.lengths[block])
    }

    /// The position of a block in the file.
    pub(super) fn position(&self, block: usize) -> u64 {
        let group = block / GROUP;
        let before = &self.lengths[group * GROUP..block];
        self.group_starts[group] + before.iter().map(|&length| u64::from(length)).sum::<u64>()
    }
}

/// Compares what the container claims with its length, before anything is allocated.
fn check_bounds(
    source: &SourceHandle,
    superblock: &Superblock,
    file_length: u64,
    limits: &Limits,
) -> Result<(), LayerError> {
    let blocks = superblock.blocks;
    LayerError::limit(&source.name, "number of compressed blocks", blocks, limits.compressed_blocks)?;
    let fits = superblock.original_size.div_ceil(u64::from(superblock.block_size)) == blocks
        && superblock.table_offset >= superblock::SPACE as u64
        && superblock
            .table_offset
            .checked_add(blocks.saturating_mul(ENTRY_SIZE as u64))
            .is_some_and(|end| end <= file_length - superblock::SPACE as u64);
    if fits {
        Ok(())
    } else {
        Err(source.damaged(superblock.table_offset, Damage::JumpTable))
    }
}
