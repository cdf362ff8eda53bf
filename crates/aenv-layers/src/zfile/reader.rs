//! Reading any range of a compressed container. Bytes that fail their checksum are fetched again and never returned.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::jump_table::JumpTable;
use super::superblock::{Refusal, Superblock, SPACE};
use super::{ZfileOptions, BLOCK_SEED, CHECKSUM_SIZE};
use crate::checksum::raw_crc32c;
use crate::error::{Damage, LayerError};
use crate::limits::Limits;
use crate::storage::{ReadAt, SourceHandle};

/// Compressed bytes that are fetched at a time.
const FETCH_SIZE: usize = 64 << 10;

/// How often a block is fetched before it is given up: a copy of it may be damaged where the original is not.
const ATTEMPTS: usize = 3;

/// An open compressed container.
pub struct ZfileReader {
    source: SourceHandle,
    superblock: Superblock,
    table: JumpTable,
}

impl ZfileReader {
    /// Opens a container. `name` is what errors call it.
    pub fn open(name: &str, source: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self, LayerError> {
        let source = SourceHandle::new(Arc::from(name), source);
        let length = source.length()?;
        if length < 2 * SPACE as u64 {
            return Err(source.damaged(length, Damage::Truncated));
        }
        let superblock = read_superblock(&source, length)?;
        let table = JumpTable::read(&source, &superblock, length, limits)?;
        Ok(Self { source, superblock, table })
    }

    /// How the container was written.
    pub fn options(&self) -> ZfileOptions {
        ZfileOptions {
            compression: self.superblock.compression,
            block_size: self.superblock.block_size,
            checksums: self.superblock.has_checksums,
        }
    }

    /// Fills the buffer with the decompressed bytes at `offset`.
    pub fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        let size = self.superblock.original_size;
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > size) {
            return Err(self.source.damaged(size, Damage::Truncated));
        }
        let block_size = u64::from(self.superblock.block_size);
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let first = (at / block_size) as usize;
            let last = ((at + rest.len() as u64 - 1) / block_size) as usize;
            let blocks = first..first + self.batch(first, last);
            let skipped = (at - first as u64 * block_size) as usize;
            let taken = self.read_batch(blocks, skipped, rest)?;
            rest = &mut rest[taken..];
            at += taken as u64;
        }
        Ok(())
    }

    /// Reads neighbouring blocks in one go, leaves the first bytes out, and returns how much of the buffer it filled.
    fn read_batch(
        &self,
        blocks: Range<usize>,
        skipped: usize,
        buffer: &mut [u8],
    ) -> Result<usize, LayerError> {
        let position = self.table.position(blocks.start);
        let stored: usize = blocks.clone().map(|block| self.table.length(block)).sum();
        let mut compressed = vec![0; stored];
        self.source.read_exact(position, &mut compressed)?;
        let (mut from, mut filled, mut skipped) = (0, 0, skipped);
        for block in blocks {
            let to = from + self.table.length(block);
            let stored = &mut compressed[from..to];
            let place = position + from as u64;
            let whole = self.block_length(block);
            let taken = (whole - skipped).min(buffer.len() - filled);
            let part = &mut buffer[filled..filled + taken];
            if taken == whole {
                self.decode(place, stored, part)?;
            } else {
                let mut scratch = vec![0; whole];
                self.decode(place, stored, &mut scratch)?;
                part.copy_from_slice(&scratch[skipped..skipped + taken]);
            }
            (from, filled, skipped) = (to, filled + taken, 0);
        }
        Ok(filled)
    }

    /// How many blocks from `first` on are fetched at once.
    fn batch(&self, first: usize, last: usize) -> usize {
        let mut stored = self.table.length(first);
        let more = (first + 1..=last).take_while(|&block| {
            stored += self.table.length(block);
            stored <= FETCH_SIZE
        });
        1 + more.count()
    }

    /// The decompressed length of a block; only the last may be short.
    fn block_length(&self, block: usize) -> usize {
        let block_size = u64::from(self.superblock.block_size);
        block_size.min(self.superblock.original_size - block as u64 * block_size) as usize
    }

    /// Decodes a block, fetching it anew while it is damaged.
    fn decode(&self, position: u64, stored: &mut [u8], output: &mut [u8]) -> Result<(), LayerError> {
        let mut outcome = self.decode_once(stored, output);
        for _ in 1..ATTEMPTS {
            if outcome.is_ok() {
                break;
            }
            self.source.evict(position, stored.len() as u64);
            self.source.read_exact(position, stored)?;
            outcome = self.decode_once(stored, output);
        }
        outcome.map_err(|damage| self.source.damaged(position, damage))
    }

    fn decode_once(&self, stored: &[u8], output: &mut [u8]) -> Result<(), Damage> {
        let mut compressed = stored;
        if self.superblock.has_checksums {
            let (block, checksum) = stored.split_at(stored.len() - CHECKSUM_SIZE);
            if raw_crc32c(BLOCK_SEED, block).to_le_bytes() != checksum {
                return Err(Damage::Checksum);
            }
            compressed = block;
        }
        self.superblock.compression.decompress(compressed, output)
    }
}

impl ReadAt for ZfileReader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.superblock.original_size.saturating_sub(offset);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        self.read_exact(offset, &mut buffer[..count]).map_err(io::Error::other)?;
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.superblock.original_size)
    }
}

/// The header when it is complete, else the trailer: streams are written without going back.
fn read_superblock(source: &SourceHandle, length: u64) -> Result<Superblock, LayerError> {
    let refused = |offset, refusal| match refusal {
        Refusal::Damaged(damage) => source.damaged(offset, damage),
        Refusal::Unsupported(feature) => LayerError::unsupported(&source.name, feature),
    };
    let mut block = [0; SPACE];
    source.read_exact(0, &mut block)?;
    if let Some(header) = Superblock::parse_header(&block).map_err(|refusal| refused(0, refusal))? {
        return Ok(header);
    }
    let offset = length - SPACE as u64;
    source.read_exact(offset, &mut block)?;
    Superblock::parse_trailer(&block).map_err(|refusal| refused(offset, refusal))
}
