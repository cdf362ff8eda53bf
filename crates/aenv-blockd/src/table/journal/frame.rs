//! Frames of the table file: length, checksum, bytes. It tells the end that a crash left from damage.

use std::io;
use std::path::{Path, PathBuf};

/// At the beginning of the file; the last byte is the version of the format.
pub(super) const MAGIC: [u8; 8] = *b"AENVTBL\x01";

/// Bytes before each payload.
const HEADER: usize = 8;

/// Most bytes of one payload.
const MAX_PAYLOAD: usize = 64 << 20;

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// The file failed.
    #[error("cannot read or write the device table {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is of another program or version.
    #[error("{} is not a device table of this version", .0.display())]
    Foreign(PathBuf),
    /// The file is damaged before its end.
    #[error(
        "the device table {} is damaged at byte {offset}: {reason}. Images may be missing from it. \
         Restore the file, or move it away after closing what its images were for",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the bad frame begins.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

/// A frame around a payload.
pub(super) fn encode(payload: &[u8]) -> io::Result<Vec<u8>> {
    if payload.len() > MAX_PAYLOAD {
        return Err(io::Error::other("a change of the table is too large"));
    }
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(checksum(payload).to_le_bytes());
    frame.extend(payload);
    Ok(frame)
}

/// The frames of a file.
pub(super) struct Frames<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    last: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self, TableError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(TableError::Foreign(path.to_owned()));
        }
        Ok(Self { path, bytes, at: MAGIC.len(), last: MAGIC.len() })
    }

    /// The next payload; none at the end or at a frame that a crash cut short.
    pub(super) fn next(&mut self) -> Result<Option<&'a [u8]>, TableError> {
        let rest = &self.bytes[self.at..];
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > 0 && length <= MAX_PAYLOAD && length <= body.len() {
            let payload = &body[..length];
            if checksum(payload) == u32::from_le_bytes([e, f, g, h]) {
                self.last = self.at;
                self.at += HEADER + length;
                return Ok(Some(payload));
            }
        }
        // Frames are written one after the other, each when the one before is durable: a crash spoils only the last,
        // which then reaches to the end of the file, or is nothing but zeros.
        let is_last = length >= body.len() && length <= MAX_PAYLOAD;
        if is_last || rest.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        self.last = self.at;
        Err(self.damaged("the checksum is wrong"))
    }

    /// Where the last good frame ends.
    pub(super) fn end(&self) -> u64 {
        self.at as u64
    }

    /// The frame that was last looked at makes no sense.
    pub(super) fn damaged(&self, reason: impl ToString) -> TableError {
        TableError::Damaged {
            path: self.path.to_owned(),
            offset: self.last as u64,
            reason: reason.to_string(),
        }
    }
}

fn checksum(payload: &[u8]) -> u32 {
    // Zeros have another checksum than zero.
    crc32c::crc32c(payload)
}
