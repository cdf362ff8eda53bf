//! The bytes of an open image. Layers deal in whole sectors; callers may ask for any bytes.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aenv_layers::{Content as Kind, Disk, LayerError, Stack, View, SECTOR_SIZE};
use nix::errno::Errno;

use super::plain::PlainFile;

const SECTOR: usize = SECTOR_SIZE as usize;

/// Bytes by which a buffer must exceed what is read, for the parts of sectors at both ends.
pub(crate) const READ_MARGIN: usize = 2 * SECTOR;

/// Bytes of a disk that are looked through at once for data or holes.
const SEEK_WINDOW: u64 = 256 << 20;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Bytes that some layer holds.
    Data,
    /// Bytes that no layer holds.
    Hole,
}

/// Why bytes could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// The layers failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The image takes no writes.
    #[error("the image is read-only")]
    ReadOnly,
    /// The range ends behind the disk.
    #[error("the range ends behind the disk")]
    BehindEnd,
}

impl AccessError {
    /// What the user of a file hears.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::ReadOnly => Errno::EROFS,
            Self::BehindEnd => Errno::ENOSPC,
            Self::Layer(LayerError::Io { source, .. }) => match source.raw_os_error().map(Errno::from_raw) {
                Some(full @ (Errno::ENOSPC | Errno::EDQUOT)) => full,
                _ => Errno::EIO,
            },
            Self::Layer(LayerError::OutOfRange { .. } | LayerError::Misaligned { .. }) => Errno::EINVAL,
            Self::Layer(_) => Errno::EIO,
        }
    }
}

/// An open image.
pub(crate) enum Content {
    /// Sealed layers alone.
    Sealed(Arc<Stack>),
    /// A plain file.
    Plain(PlainFile),
    /// Sealed layers below one that takes writes.
    Writable(WritableDisk),
}

/// A disk, and the order among writes that share a sector.
pub(crate) struct WritableDisk {
    disk: Arc<Disk>,
    /// Held shared by writes of whole sectors, and alone while a part of a sector is replaced.
    edges: RwLock<()>,
}

impl WritableDisk {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk, edges: RwLock::new(()) }
    }

    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Keeps writes out for as long as the result lives.
    pub(crate) fn hold_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.edges.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn share_writes(&self) -> RwLockReadGuard<'_, ()> {
        self.edges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        if is_aligned(offset, bytes.len() as u64) {
            let _shared = self.share_writes();
            return self.disk.write(offset, bytes);
        }
        let _alone = self.hold_writes();
        let (head, whole, tail) = split(offset, bytes.len() as u64);
        let (head_bytes, rest) = bytes.split_at(head as usize);
        let (whole_bytes, tail_bytes) = rest.split_at(whole as usize);
        self.replace_part(offset, head_bytes)?;
        if whole > 0 {
            self.disk.write(offset + head, whole_bytes)?;
        }
        debug_assert_eq!(tail_bytes.len() as u64, tail, "the three parts are the whole");
        self.replace_part(offset + head + whole, tail_bytes)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), LayerError> {
        if is_aligned(offset, length) {
            let _shared = self.share_writes();
            return self.disk.zero(offset, length);
        }
        let _alone = self.hold_writes();
        let (head, whole, tail) = split(offset, length);
        self.replace_part(offset, &[0; SECTOR][..head as usize])?;
        if whole > 0 {
            self.disk.zero(offset + head, whole)?;
        }
        self.replace_part(offset + head + whole, &[0; SECTOR][..tail as usize])
    }

    /// Replaces bytes within one sector. Writes must be kept out meanwhile.
    fn replace_part(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let start = offset / SECTOR_SIZE * SECTOR_SIZE;
        let within = (offset - start) as usize;
        let mut sector = [0; SECTOR];
        self.disk.read(start, &mut sector)?;
        sector[within..within + bytes.len()].copy_from_slice(bytes);
        self.disk.write(start, &sector)
    }
}

fn is_aligned(offset: u64, length: u64) -> bool {
    offset % SECTOR_SIZE == 0 && length % SECTOR_SIZE == 0
}

/// Divides a range into the rest of its first sector, whole sectors, and the beginning of its last.
fn split(offset: u64, length: u64) -> (u64, u64, u64) {
    let head = ((SECTOR_SIZE - offset % SECTOR_SIZE) % SECTOR_SIZE).min(length);
    let whole = (length - head) / SECTOR_SIZE * SECTOR_SIZE;
    (head, whole, length - head - whole)
}

impl Content {
    /// The layers as one disk.
    pub(crate) fn view(&self) -> &dyn View {
        match self {
            Self::Sealed(stack) => stack.as_ref(),
            Self::Plain(file) => file,
            Self::Writable(writable) => writable.disk.as_ref(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.view().size()
    }

    /// Reads as many of `length` bytes as the image has. The buffer must exceed them by `READ_MARGIN`.
    pub(crate) fn read<'b>(
        &self,
        offset: u64,
        length: usize,
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], AccessError> {
        let rest = self.size().saturating_sub(offset);
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(length);
        if length == 0 {
            return Ok(&[]);
        }
        let within = (offset % SECTOR_SIZE) as usize;
        let whole = (within + length).next_multiple_of(SECTOR);
        let sectors = &mut buffer[..whole];
        self.view().read(offset - within as u64, sectors)?;
        Ok(&sectors[within..within + length])
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.writable_range(offset, bytes.len() as u64)?.write(offset, bytes).map_err(AccessError::Layer)
    }

    /// Makes a range read as zeros.
    pub(crate) fn zero(&self, offset: u64, length: u64) -> Result<(), AccessError> {
        self.writable_range(offset, length)?.zero(offset, length).map_err(AccessError::Layer)
    }

    /// Makes everything durable that was acknowledged.
    pub(crate) fn flush(&self) -> Result<(), AccessError> {
        match self {
            Self::Sealed(_) | Self::Plain(_) => Ok(()),
            Self::Writable(writable) => writable.disk.flush().map_err(AccessError::Layer),
        }
    }

    /// The first byte at or behind `offset` that is of this kind; none when there is none. The end counts as a hole.
    pub(crate) fn seek(&self, offset: u64, target: Target) -> Result<Option<u64>, AccessError> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset / SECTOR_SIZE * SECTOR_SIZE;
        while at < size {
            let window = SEEK_WINDOW.min(size - at);
            let pieces = self.view().pieces(at, window)?;
            let wanted = |content| (content == Kind::Data) == (target == Target::Data);
            if let Some(piece) = pieces.iter().find(|piece| wanted(piece.content)) {
                return Ok(Some(piece.extent.offset().max(offset)));
            }
            at += window;
        }
        Ok((target == Target::Hole).then_some(size))
    }

    fn writable_range(&self, offset: u64, length: u64) -> Result<&WritableDisk, AccessError> {
        let Self::Writable(writable) = self else { return Err(AccessError::ReadOnly) };
        match offset.checked_add(length) {
            Some(end) if end <= self.size() => Ok(writable),
            _ => Err(AccessError::BehindEnd),
        }
    }
}
