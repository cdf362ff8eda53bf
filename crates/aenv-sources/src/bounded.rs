//! Reads small files of the operator, and refuses large ones.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::SourceError;

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, SourceError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(bytes)
    };
    read().map_err(|error| SourceError::file(path, error))
}
