//! Bytes together with the name of their layer: the one place where errors of the system become errors of a layer.

use std::io;
use std::sync::Arc;

use super::{File, ReadAt};
use crate::error::{Damage, LayerError, Operation};

/// A named source of bytes.
#[derive(Clone)]
pub(crate) struct SourceHandle {
    pub(crate) name: Arc<str>,
    source: Arc<dyn ReadAt>,
}

impl SourceHandle {
    pub(crate) fn new(name: Arc<str>, source: Arc<dyn ReadAt>) -> Self {
        Self { name, source }
    }

    pub(crate) fn length(&self) -> Result<u64, LayerError> {
        self.source.length().map_err(|error| failed(&self.name, Operation::Resize, 0, error))
    }

    /// Fills the buffer; an early end is damage, because bounds were checked when the layer was opened.
    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            match self.source.read_at(at, &mut buffer[done..]) {
                Ok(0) => return Err(LayerError::corrupt(&self.name, at, Damage::Truncated)),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.name, Operation::Read, at, error)),
            }
        }
        Ok(())
    }

    pub(crate) fn evict(&self, offset: u64, length: u64) {
        self.source.evict(offset, length);
    }

    pub(crate) fn damaged(&self, offset: u64, damage: Damage) -> LayerError {
        LayerError::corrupt(&self.name, offset, damage)
    }

    pub(crate) fn into_source(self) -> Arc<dyn ReadAt> {
        self.source
    }
}

/// A named file.
#[derive(Clone)]
pub(crate) struct FileHandle {
    pub(crate) name: Arc<str>,
    pub(crate) reader: SourceHandle,
    file: Arc<dyn File>,
}

impl FileHandle {
    pub(crate) fn new(name: Arc<str>, file: Arc<dyn File>) -> Self {
        let reader = SourceHandle::new(Arc::clone(&name), Arc::new(Arc::clone(&file)));
        Self { name, reader, file }
    }

    pub(crate) fn length(&self) -> Result<u64, LayerError> {
        self.reader.length()
    }

    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LayerError> {
        self.reader.read_exact(offset, buffer)
    }

    pub(crate) fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let outcome = match self.file.write_at(at, &bytes[done..]) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                other => other,
            };
            match outcome {
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.name, Operation::Write, at, error)),
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), LayerError> {
        self.file.sync().map_err(|error| failed(&self.name, Operation::Sync, 0, error))
    }

    pub(crate) fn set_length(&self, length: u64) -> Result<(), LayerError> {
        self.file.set_length(length).map_err(|error| failed(&self.name, Operation::Resize, length, error))
    }

    pub(crate) fn punch(&self, offset: u64, length: u64) -> Result<(), LayerError> {
        self.file.punch(offset, length).map_err(|error| failed(&self.name, Operation::Punch, offset, error))
    }
}

/// Names the layer and the place of a failed system call. An error of a container within passes as it is.
pub(crate) fn failed(layer: &Arc<str>, operation: Operation, offset: u64, source: io::Error) -> LayerError {
    source.downcast::<LayerError>().unwrap_or_else(|source| LayerError::Io {
        layer: Arc::clone(layer),
        operation,
        offset,
        source,
    })
}
