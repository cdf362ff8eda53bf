//! A raw disk image as a disk that layers can be made from. Where the file has holes, nothing is read.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use aenv_layers::{Content, Extent, LayerError, Operation, Piece, View, SECTOR_SIZE};
use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::input::Input;

/// An open raw image. It must not change while it is read.
pub(crate) struct RawImage {
    name: Arc<str>,
    input: Input,
}

impl RawImage {
    pub(crate) fn new(input: Input) -> Result<Self, Failure> {
        if input.length == 0 || input.length % SECTOR_SIZE != 0 {
            return Err(Failure::Invalid(format!(
                "{} is no disk image: {} bytes are not whole sectors of {SECTOR_SIZE}",
                input.name(),
                input.length
            )));
        }
        Ok(Self { name: Arc::from(input.name()), input })
    }

    fn failed(&self, offset: u64, source: std::io::Error) -> LayerError {
        LayerError::Io { layer: Arc::clone(&self.name), operation: Operation::Read, offset, source }
    }

    /// The next range of the file that is no hole, in bytes, not beyond `end`. It may contain zeros all the same.
    fn next_data(&self, from: u64, end: u64) -> Result<Option<(u64, u64)>, LayerError> {
        let start = match seek(&self.input.file, SeekFrom::Data(from)) {
            Ok(start) if start < end => start,
            Ok(_) | Err(Errno::NXIO) => return Ok(None),
            // A file system without holes.
            Err(Errno::INVAL) => return Ok(Some((from, end))),
            Err(error) => return Err(self.failed(from, error.into())),
        };
        let hole = seek(&self.input.file, SeekFrom::Hole(start))
            .map_err(|error| self.failed(start, error.into()))?;
        Ok(Some((start, hole.min(end))))
    }
}

impl View for RawImage {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn size(&self) -> u64 {
        self.input.length
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        self.input.file.read_exact_at(buffer, offset).map_err(|error| self.failed(offset, error))
    }

    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
        let end = (offset + length).min(self.size());
        let mut pieces = Vec::new();
        let mut at = offset;
        while let Some((start, stop)) = self.next_data(at, end)? {
            // Holes begin and end at blocks of the file system, which need not be sectors of ours.
            let first = (start / SECTOR_SIZE).max(at / SECTOR_SIZE);
            let last = stop.div_ceil(SECTOR_SIZE);
            push(&mut pieces, at / SECTOR_SIZE, first, Content::Hole);
            push(&mut pieces, first, last, Content::Data);
            at = last * SECTOR_SIZE;
        }
        push(&mut pieces, at / SECTOR_SIZE, end / SECTOR_SIZE, Content::Hole);
        Ok(pieces)
    }
}

fn push(pieces: &mut Vec<Piece>, start: u64, end: u64, content: Content) {
    if start < end {
        pieces.push(Piece { extent: Extent { start, length: end - start }, content });
    }
}
