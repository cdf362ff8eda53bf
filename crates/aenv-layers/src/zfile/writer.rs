//! Writing a compressed container front to back; the header is completed last.

use std::sync::Arc;

use super::codec::Compression;
use super::superblock::{Role, Superblock, SPACE};
use super::BLOCK_SEED;
use crate::checksum::raw_crc32c;
use crate::error::LayerError;
use crate::limits::MAX_COMPRESSED_BLOCKS;
use crate::writer::{FileSink, Sink};

/// The largest block that the reference reads even when it does not compress.
const LARGEST_WRITTEN_BLOCK: u64 = 32 << 10;

/// How a container is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZfileOptions {
    /// How blocks are compressed.
    pub compression: Compression,
    /// Bytes of a block before compression: 4, 8, 16 or 32 KiB.
    pub block_size: u32,
    /// Whether each block is followed by its checksum.
    pub checksums: bool,
}

impl Default for ZfileOptions {
    fn default() -> Self {
        Self { compression: Compression::Lz4, block_size: 4096, checksums: true }
    }
}

/// A container that is being written. It is a sink for the bytes to compress.
pub struct ZfileWriter {
    sink: FileSink,
    options: ZfileOptions,
    /// Bytes that do not fill a block yet.
    pending: Vec<u8>,
    /// Compressed blocks that are not yet written.
    ready: Vec<u8>,
    table: Vec<u8>,
    original_size: u64,
}

/// Compressed bytes that are written at a time.
const WRITE_SIZE: usize = 256 << 10;

impl ZfileWriter {
    /// Starts a container in a sink.
    pub fn new(options: ZfileOptions, mut sink: FileSink) -> Result<Self, LayerError> {
        let block_size = u64::from(options.block_size);
        if !block_size.is_power_of_two() || block_size < 4096 {
            return Err(LayerError::unsupported(
                sink.name(),
                "a block size that is no power of two from 4 KiB on",
            ));
        }
        LayerError::limit(sink.name(), "block size", block_size, LARGEST_WRITTEN_BLOCK)?;
        let superblock = describe(options, 0, 0, 0, 0);
        sink.append(&superblock.to_block(Role::UnfinishedHeader))?;
        Ok(Self {
            sink,
            options,
            pending: Vec::new(),
            ready: Vec::new(),
            table: Vec::new(),
            original_size: 0,
        })
    }

    /// Writes the last block, the table, the trailer and the complete header, and hands the sink back.
    pub fn finish(mut self) -> Result<FileSink, LayerError> {
        let last = std::mem::take(&mut self.pending);
        if !last.is_empty() {
            self.write_block(&last)?;
        }
        self.sink.append(&self.ready)?;
        let blocks = self.table.len() as u64 / 4;
        let checksum = raw_crc32c(0, &self.table);
        let superblock = describe(self.options, self.sink.length(), blocks, self.original_size, checksum);
        self.sink.append(&self.table)?;
        self.sink.append(&superblock.to_block(Role::Trailer))?;
        self.sink.overwrite(0, &superblock.to_block(Role::Header))?;
        Ok(self.sink)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<(), LayerError> {
        let mut stored = self.options.compression.compress(block);
        if self.options.checksums {
            stored.extend(raw_crc32c(BLOCK_SEED, &stored).to_le_bytes());
        }
        let blocks = self.table.len() as u64 / 4 + 1;
        LayerError::limit(self.sink.name(), "number of compressed blocks", blocks, MAX_COMPRESSED_BLOCKS)?;
        self.table.extend((stored.len() as u32).to_le_bytes());
        self.ready.append(&mut stored);
        if self.ready.len() >= WRITE_SIZE {
            self.sink.append(&self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }
}

impl Sink for ZfileWriter {
    fn name(&self) -> &Arc<str> {
        self.sink.name()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        let block_size = self.options.block_size as usize;
        self.original_size += bytes.len() as u64;
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(block_size - self.pending.len()));
            self.pending.extend_from_slice(head);
            rest = tail;
            if self.pending.len() == block_size {
                let block = std::mem::take(&mut self.pending);
                self.write_block(&block)?;
            }
        }
        let mut blocks = rest.chunks_exact(block_size);
        for block in blocks.by_ref() {
            self.write_block(block)?;
        }
        self.pending.extend_from_slice(blocks.remainder());
        Ok(())
    }
}

fn describe(
    options: ZfileOptions,
    table_offset: u64,
    blocks: u64,
    original_size: u64,
    table_checksum: u32,
) -> Superblock {
    debug_assert!(table_offset == 0 || table_offset >= SPACE as u64);
    Superblock {
        table_offset,
        blocks,
        original_size,
        table_checksum: Some(table_checksum),
        block_size: options.block_size,
        compression: options.compression,
        has_checksums: options.checksums,
    }
}
