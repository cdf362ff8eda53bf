//! Layer files of this host, opened with suspicion: a regular file, and none of our own mount, on which we would wait
//! for ourselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use aenv_layers::ReadAt;
use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};

use crate::image::Use;
use crate::refusal::Refusal;

/// What tells two files apart whatever their paths are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A layer file.
pub(crate) struct LayerFile {
    file: File,
    /// Whether the page cache of the mount keeps what is read, so that a second copy would be waste.
    is_cached_above: bool,
}

impl LayerFile {
    /// Opens a file that is not below `mount`.
    pub(crate) fn open(path: &Path, mount: &Path, purpose: Use) -> Result<(Self, FileIdentity), Refusal> {
        let (file, identity) = open(path, mount)?;
        let is_cached_above = purpose == Use::Memory;
        if is_cached_above {
            // The kernel reads ahead in the file above. A refusal costs nothing but the advice.
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        }
        Ok((Self { file, is_cached_above }, identity))
    }
}

/// Opens a regular file that is not below `mount`.
pub(super) fn open(path: &Path, mount: &Path) -> Result<(File, FileIdentity), Refusal> {
    if !path.is_absolute() || path.starts_with(mount) {
        return Err(Refusal::argument(format!("{} is no path for a layer", path.display())));
    }
    // Without O_NONBLOCK, a pipe in the place of a file would hold us up.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(Refusal::file("open", path))?;
    let metadata = file.metadata().map_err(Refusal::file("look at", path))?;
    if !metadata.is_file() {
        return Err(Refusal::argument(format!("{} is not a regular file", path.display())));
    }
    Ok((file, FileIdentity { device: metadata.dev(), inode: metadata.ino() }))
}

impl ReadAt for LayerFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        if self.is_cached_above {
            let (Ok(start), Ok(length)) = (offset.try_into(), count.try_into()) else { return Ok(count) };
            let _ = posix_fadvise(&self.file, start, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }
}
