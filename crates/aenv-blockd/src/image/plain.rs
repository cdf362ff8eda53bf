//! A plain file as a read-only image: byte for byte what it shows, so that the kernel can read it by itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use aenv_layers::{Content, Extent, LayerError, Operation, Piece, View, SECTOR_SIZE};

/// A plain file that nobody changes while it is open.
pub(crate) struct PlainFile {
    name: Arc<str>,
    file: File,
    size: u64,
}

impl PlainFile {
    /// Takes a file over. Its length must be whole sectors.
    pub(crate) fn new(path: &Path, file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        if size == 0 || size % SECTOR_SIZE != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the length is not whole sectors of 512 bytes",
            ));
        }
        Ok(Self { name: Arc::from(path.to_string_lossy()), file, size })
    }

    /// The file itself.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl View for PlainFile {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| LayerError::Io {
            layer: Arc::clone(&self.name),
            operation: Operation::Read,
            offset,
            source,
        })
    }

    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece>, LayerError> {
        let extent = Extent { start: offset / SECTOR_SIZE, length: length / SECTOR_SIZE };
        Ok(vec![Piece { extent, content: Content::Data }])
    }
}
