//! Writing a new sealed layer front to back: header, data, index, trailer. The result depends on the content alone,
//! not on how it came to be, so that equal layers have equal digests.

use std::sync::Arc;

use crate::error::LayerError;
use crate::index::{serialise, Entry};
use crate::limits::{
    BLOCK_SIZE, FIRST_DATA_SECTOR, INDEX_PADDING, JOINED_RUN_SECTORS, MAX_ENTRIES_PER_LAYER, SECTOR_SIZE,
};
use crate::lsmt::{LayerId, Role, Superblock};
use crate::storage::{File, FileHandle};

/// Where a layer, or a container of one, is written to from front to back.
pub trait Sink {
    /// The name that errors carry.
    fn name(&self) -> &Arc<str>;

    /// Takes the next bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<(), LayerError>;
}

/// A sink that is a part of a file, from some position on.
pub struct FileSink {
    file: FileHandle,
    start: u64,
    length: u64,
}

impl FileSink {
    /// Appends to `file` from byte `start` on. `name` is what errors call the layer.
    pub fn new(name: &str, file: Arc<dyn File>, start: u64) -> Self {
        Self { file: FileHandle::new(Arc::from(name), file), start, length: 0 }
    }

    /// Bytes appended so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Replaces bytes that were appended earlier.
    pub(crate) fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        self.file.write_all(self.start + offset, bytes)
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> Result<(), LayerError> {
        self.file.sync()
    }
}

impl Sink for FileSink {
    fn name(&self) -> &Arc<str> {
        &self.file.name
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        self.file.write_all(self.start + self.length, bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// What a new sealed layer says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSealed {
    /// Its identifier.
    pub id: LayerId,
    /// The identifier of the layer below. Informative only.
    pub parent: LayerId,
    /// Size of the virtual disk in bytes; 0 means that the layer below decides.
    pub virtual_size: u64,
    /// Free text, at most 256 bytes.
    pub tag: Vec<u8>,
    /// Whether 4 KiB blocks of data that are all zeros become runs of zeros that take no space.
    pub detect_zeroes: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSummary {
    /// Entries of the index, without padding.
    pub entries: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of the layer, before any compression.
    pub length: u64,
}

/// Writes one layer into a sink. Runs must come in ascending order.
pub struct LayerWriter<'a> {
    sink: &'a mut dyn Sink,
    superblock: Superblock,
    detect_zeroes: bool,
    entries: Vec<Entry>,
    /// Where the next data goes, in sectors of the layer.
    target: u64,
}

/// Sectors of a block that is looked at for zeros.
const ZERO_BLOCK_SECTORS: u64 = 4096 / SECTOR_SIZE;

impl<'a> LayerWriter<'a> {
    /// Starts a layer.
    pub fn new(new: NewSealed, sink: &'a mut dyn Sink) -> Result<Self, LayerError> {
        LayerError::limit(
            sink.name(),
            "length of the tag",
            new.tag.len() as u64,
            Superblock::MAX_TAG as u64,
        )?;
        let superblock = Superblock {
            virtual_size: new.virtual_size,
            id: new.id,
            parent: new.parent,
            tag: new.tag,
            ..Superblock::default()
        };
        sink.append(&superblock.to_block(Role::SealedHeader))?;
        let detect_zeroes = new.detect_zeroes;
        Ok(Self { sink, superblock, detect_zeroes, entries: Vec::new(), target: FIRST_DATA_SECTOR })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.sink.name()
    }

    /// Adds whole sectors of data, the first of which is `start`.
    pub fn data(&mut self, start: u64, bytes: &[u8]) -> Result<(), LayerError> {
        if bytes.len() as u64 % SECTOR_SIZE != 0 {
            return Err(LayerError::Misaligned {
                layer: Arc::clone(self.sink.name()),
                offset: start * SECTOR_SIZE,
                length: bytes.len() as u64,
            });
        }
        if !self.detect_zeroes {
            return self.append_data(start, bytes);
        }
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (run, is_zero) = leading_run(at, rest, ZERO_BLOCK_SECTORS);
            let sectors = run.len() as u64 / SECTOR_SIZE;
            if is_zero {
                self.zeroed(at, sectors)?;
            } else {
                self.append_data(at, run)?;
            }
            at += sectors;
            rest = &rest[run.len()..];
        }
        Ok(())
    }

    /// Adds sectors that read as zeros and hide what is below them.
    pub fn zeroed(&mut self, start: u64, sectors: u64) -> Result<(), LayerError> {
        self.add_run(start, sectors, true)
    }

    /// Writes index and trailer.
    pub fn finish(mut self) -> Result<LayerSummary, LayerError> {
        let entries = self.entries.len() as u64;
        self.entries.resize(entries.next_multiple_of(INDEX_PADDING) as usize, Entry::PADDING);
        self.superblock.index_offset = self.target * SECTOR_SIZE;
        self.superblock.index_entries = self.entries.len() as u64;
        LayerError::limit(
            self.sink.name(),
            "number of index entries",
            self.superblock.index_entries,
            MAX_ENTRIES_PER_LAYER,
        )?;
        let mut end = serialise(&self.entries);
        end.extend(self.superblock.to_block(Role::Trailer));
        self.sink.append(&end)?;
        Ok(LayerSummary {
            entries,
            data_bytes: self.superblock.index_offset - BLOCK_SIZE,
            length: self.superblock.index_offset + end.len() as u64,
        })
    }

    fn append_data(&mut self, start: u64, bytes: &[u8]) -> Result<(), LayerError> {
        let sectors = bytes.len() as u64 / SECTOR_SIZE;
        self.add_run(start, sectors, false)?;
        self.sink.append(bytes)?;
        self.target += sectors;
        Ok(())
    }

    /// Extends the last entry as far as it may go, then starts new ones.
    fn add_run(&mut self, start: u64, sectors: u64, zeroed: bool) -> Result<(), LayerError> {
        let mut start = start;
        let mut sectors = sectors;
        let mut target = self.target;
        let last_end = self.entries.last().map_or(0, |last| last.end());
        let fits = start.checked_add(sectors).is_some_and(|end| end <= crate::limits::MAX_SECTORS);
        if start < last_end || !fits {
            return Err(LayerError::OutOfOrder { layer: Arc::clone(self.sink.name()), sector: start });
        }
        while sectors > 0 {
            let last = self.entries.last_mut().filter(|last| {
                last.end() == start && last.is_zeroed() == zeroed && last.length() < JOINED_RUN_SECTORS
            });
            let taken = match last {
                Some(last) => {
                    let taken = sectors.min(JOINED_RUN_SECTORS - last.length());
                    *last = last.extended_by(taken);
                    taken
                }
                None => {
                    let taken = sectors.min(JOINED_RUN_SECTORS);
                    let make = if zeroed { Entry::zeroed } else { Entry::with_data };
                    self.entries.push(make(start, taken, target));
                    taken
                }
            };
            start += taken;
            sectors -= taken;
            target += if zeroed { 0 } else { taken };
        }
        let count = self.entries.len() as u64;
        LayerError::limit(self.sink.name(), "number of index entries", count, MAX_ENTRIES_PER_LAYER)
    }
}

/// The longest prefix of whole blocks that are all zero, or all not.
pub(crate) fn leading_run(start: u64, bytes: &[u8], block_sectors: u64) -> (&[u8], bool) {
    let mut is_zero = None;
    let mut length = 0;
    while length < bytes.len() {
        let at = start + length as u64 / SECTOR_SIZE;
        let to_boundary = ((block_sectors - at % block_sectors) * SECTOR_SIZE) as usize;
        let end = bytes.len().min(length + to_boundary);
        let zero = is_all_zero(&bytes[length..end]);
        if *is_zero.get_or_insert(zero) != zero {
            break;
        }
        length = end;
    }
    (&bytes[..length], is_zero.unwrap_or(false))
}

fn is_all_zero(bytes: &[u8]) -> bool {
    // Folding fixed pieces without early exit within them lets the compiler use wide registers.
    bytes.chunks(128).all(|piece| piece.iter().fold(0, |all, &byte| all | byte) == 0)
}
