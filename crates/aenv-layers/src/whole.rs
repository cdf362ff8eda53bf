//! Making one layer of a whole disk. What it holds depends on the bytes of the disk alone, not on the layers or the
//! holes that they come from, so that equal disks give equal layers.

use crate::commit::{report, Watcher, COPY_SIZE};
use crate::error::LayerError;
use crate::extent::Extent;
use crate::limits::SECTOR_SIZE;
use crate::view::{Content, View};
use crate::writer::{leading_run, LayerSummary, LayerWriter, NewSealed, Sink};

/// What becomes of the zeros of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// They are left out, because nothing will be below the layer.
    Omitted,
    /// They become entries, which hide what is below.
    Hiding,
}

/// The smallest run of zeros that is not stored as data. Larger blocks give a shorter index and a larger layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroBlock {
    /// 4 KiB.
    Smallest,
    /// 64 KiB.
    Medium,
    /// 1 MiB: enough for disks of a quarter of a TiB, whatever is on them.
    Largest,
}

impl ZeroBlock {
    /// The next larger block.
    pub fn larger(self) -> Option<Self> {
        match self {
            Self::Smallest => Some(Self::Medium),
            Self::Medium => Some(Self::Largest),
            Self::Largest => None,
        }
    }

    fn sectors(self) -> u64 {
        let bytes = match self {
            Self::Smallest => 4 << 10,
            Self::Medium => 64 << 10,
            Self::Largest => COPY_SIZE as u64,
        };
        bytes / SECTOR_SIZE
    }
}

/// How many bytes `commit_disk` will read.
pub fn bytes_to_read(view: &dyn View, block: ZeroBlock) -> Result<u64, LayerError> {
    Ok(filled_blocks(view, block)?.iter().map(|extent| extent.length).sum::<u64>() * SECTOR_SIZE)
}

/// Copies a disk, which must not change meanwhile, into a new layer. `detect_zeroes` of `new` is not looked at.
pub fn commit_disk(
    view: &dyn View,
    new: NewSealed,
    zeroes: Zeroes,
    block: ZeroBlock,
    sink: &mut dyn Sink,
    watcher: Watcher<'_>,
) -> Result<LayerSummary, LayerError> {
    let mut writer = LayerWriter::new(NewSealed { detect_zeroes: false, ..new }, sink)?;
    let mut buffer = vec![0; COPY_SIZE];
    let mut end = 0;
    for extent in filled_blocks(view, block)? {
        add_zeroes(&mut writer, zeroes, end, extent.start)?;
        let mut at = extent.start;
        end = extent.end();
        while at < end {
            // Every piece begins and ends at a block, so that none is looked at in parts.
            let boundary = (at * SECTOR_SIZE / COPY_SIZE as u64 + 1) * (COPY_SIZE as u64 / SECTOR_SIZE);
            let piece = &mut buffer[..((end.min(boundary) - at) * SECTOR_SIZE) as usize];
            view.read(at * SECTOR_SIZE, piece)?;
            report(watcher, view.name(), piece.len())?;
            add_bytes(&mut writer, zeroes, block, at, piece)?;
            at = end.min(boundary);
        }
    }
    add_zeroes(&mut writer, zeroes, end, view.size() / SECTOR_SIZE)?;
    writer.finish()
}

/// The blocks that may hold more than zeros, joined; the last one ends with the disk.
fn filled_blocks(view: &dyn View, block: ZeroBlock) -> Result<Vec<Extent>, LayerError> {
    let sectors = block.sectors();
    let mut filled: Vec<Extent> = Vec::new();
    for piece in view.pieces(0, view.size())? {
        if piece.content != Content::Data {
            continue;
        }
        let start = piece.extent.start / sectors * sectors;
        let end = piece.extent.end().next_multiple_of(sectors).min(view.size() / SECTOR_SIZE);
        match filled.last_mut() {
            Some(last) if last.end() >= start => last.length = end.max(last.end()) - last.start,
            _ => filled.push(Extent { start, length: end - start }),
        }
    }
    Ok(filled)
}

fn add_zeroes(writer: &mut LayerWriter<'_>, zeroes: Zeroes, start: u64, end: u64) -> Result<(), LayerError> {
    match zeroes {
        Zeroes::Hiding if start < end => writer.zeroed(start, end - start),
        Zeroes::Hiding | Zeroes::Omitted => Ok(()),
    }
}

fn add_bytes(
    writer: &mut LayerWriter<'_>,
    zeroes: Zeroes,
    block: ZeroBlock,
    start: u64,
    bytes: &[u8],
) -> Result<(), LayerError> {
    let mut at = start;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (run, is_zero) = leading_run(at, rest, block.sectors());
        let end = at + run.len() as u64 / SECTOR_SIZE;
        if is_zero {
            add_zeroes(writer, zeroes, at, end)?;
        } else {
            writer.data(at, run)?;
        }
        at = end;
        rest = &rest[run.len()..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::view::Piece;

    /// A disk on which every other block of 4 KiB is zeros, and which takes no memory.
    struct Striped(Arc<str>, u64);

    const STRIPE: u64 = 4096 / SECTOR_SIZE;

    impl View for Striped {
        fn name(&self) -> &Arc<str> {
            &self.0
        }

        fn size(&self) -> u64 {
            self.1
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
            for (number, sector) in buffer.chunks_mut(SECTOR_SIZE as usize).enumerate() {
                let stripe = (offset / SECTOR_SIZE + number as u64) / STRIPE;
                sector.fill((stripe % 2) as u8);
            }
            Ok(())
        }

        fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
            let extent = Extent { start: offset / SECTOR_SIZE, length: length / SECTOR_SIZE };
            Ok(vec![Piece { extent, content: Content::Data }])
        }
    }

    struct Nowhere(Arc<str>, u64);

    impl Sink for Nowhere {
        fn name(&self) -> &Arc<str> {
            &self.0
        }

        fn append(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
            self.1 += bytes.len() as u64;
            Ok(())
        }
    }

    fn commit(size: u64, zeroes: Zeroes, block: ZeroBlock) -> Result<LayerSummary, LayerError> {
        let disk = Striped(Arc::from("disk"), size);
        let mut sink = Nowhere(Arc::from("layer"), 0);
        let new = NewSealed { virtual_size: size, ..NewSealed::default() };
        let mut read = 0;
        let summary = commit_disk(&disk, new, zeroes, block, &mut sink, &mut |bytes| {
            read += bytes;
            std::ops::ControlFlow::Continue(())
        })?;
        assert_eq!(read, bytes_to_read(&disk, block)?);
        assert_eq!(sink.1, summary.length);
        Ok(summary)
    }

    #[test]
    fn test_zeros_take_an_entry_only_where_they_hide_something() {
        let size = 1 << 20;
        let omitted = commit(size, Zeroes::Omitted, ZeroBlock::Smallest).unwrap();
        assert_eq!((omitted.entries, omitted.data_bytes), (128, size / 2));
        let hiding = commit(size, Zeroes::Hiding, ZeroBlock::Smallest).unwrap();
        assert_eq!((hiding.entries, hiding.data_bytes), (256, size / 2));
    }

    #[test]
    fn test_larger_blocks_take_fewer_entries() {
        let size = 16 << 20;
        let smallest = commit(size, Zeroes::Omitted, ZeroBlock::Smallest).unwrap();
        let medium = commit(size, Zeroes::Omitted, ZeroBlock::Medium).unwrap();
        assert_eq!((smallest.entries, smallest.data_bytes), (2048, size / 2));
        // A run of data has eight MiB at most.
        assert_eq!((medium.entries, medium.data_bytes), (3, size));
    }

    #[test]
    fn test_a_disk_may_end_within_a_block() {
        let size = 3 * SECTOR_SIZE + (1 << 20);
        let summary = commit(size, Zeroes::Hiding, ZeroBlock::Largest).unwrap();
        assert_eq!((summary.entries, summary.data_bytes), (2, 1 << 20));
    }
}
