//! A file that lives in memory: small layers, tests, fuzz targets. It forgets nothing and survives nothing.

use std::io;
use std::sync::{PoisonError, RwLock};

use super::{File, ReadAt};

/// Bytes in memory behind the file traits.
#[derive(Debug, Default)]
pub struct Memory(RwLock<Vec<u8>>);

impl Memory {
    /// A file with these contents.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(RwLock::new(bytes))
    }

    /// A copy of the contents.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ReadAt for Memory {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(rest) = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)) else {
            return Ok(0);
        };
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }
}

impl File for Memory {
    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<usize> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start.checked_add(new.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(new.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).resize(length, 0);
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let end = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX).min(bytes.len());
        if let Some(range) = usize::try_from(offset).ok().and_then(|start| bytes.get_mut(start..end)) {
            range.fill(0);
        }
        Ok(())
    }
}
