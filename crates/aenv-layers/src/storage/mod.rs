//! The seam to the bytes: positional reads and writes. It says nothing about caching, networks or names beyond a
//! directory; tests put a simulated machine behind it.

mod handle;
mod local;
mod memory;
mod window;

use std::io;
use std::sync::Arc;

pub(crate) use handle::{failed, FileHandle, SourceHandle};
pub use local::{LocalDirectory, LocalFile};
pub use memory::Memory;
pub(crate) use window::Window;

/// Bytes that can be read at any position.
///
/// An implementer promises that the same range always reads the same, unless the caller itself writes it. A caller may
/// read from many threads at once.
pub trait ReadAt: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`. Fewer may come; none means the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Says that these bytes failed a checksum: a source that holds copies fetches them anew on the next read.
    fn evict(&self, _offset: u64, _length: u64) {}
}

/// A file of the writable layer, or one that a layer is written to.
///
/// An implementer promises what a local file system does: what was written reads back at once, `sync` returns when
/// everything written before it is durable, and a sector of 512 bytes is old or new after a crash or a write that was
/// done in part, never a mixture.
pub trait File: ReadAt {
    /// Writes up to `bytes.len()` bytes at `offset`. Fewer may be taken.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Gives the space of a range back; it reads as zeros and the length stays.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// A directory that holds the files of writable layers.
pub trait Directory: Send + Sync {
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing what has the new name, atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buffer)
    }

    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn evict(&self, offset: u64, length: u64) {
        (**self).evict(offset, length);
    }
}

/// Identifies one life of the host: what the page cache held survives within it and not beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// The life that the host is in now.
    pub fn of_this_host() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let value = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
        Ok(Self(value.to_be_bytes()))
    }
}
