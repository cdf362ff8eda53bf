//! The character device of one disk: bytes of requests go through it, and its descriptors say what is asked.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use super::abi::{bytes_position, descriptors_length, descriptors_position, Descriptor};

/// An open character device. Only one program can have it open.
pub(crate) struct Character(File);

impl Character {
    pub(crate) fn new(file: File) -> Self {
        Self(file)
    }

    /// Gives a request that reads its bytes.
    pub(crate) fn put(&self, queue: u16, tag: u16, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, bytes_position(queue, tag))
    }

    /// Takes the bytes of a request that writes.
    pub(crate) fn take(&self, queue: u16, tag: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, bytes_position(queue, tag))
    }

    /// Maps the descriptors of a queue.
    pub(crate) fn descriptors(&self, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let page = page_size();
        let length = descriptors_length(depth, page) as usize;
        let position = descriptors_position(queue, page) as libc::off_t;
        // SAFETY: a new shared mapping, for reading, at an address that the kernel chooses.
        let address = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, flags, self.0.as_raw_fd(), position)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Descriptors { address, length, depth })
    }
}

impl AsRawFd for Character {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Character {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

/// What the kernel asks for, by tag.
pub(crate) struct Descriptors {
    address: NonNull<Descriptor>,
    length: usize,
    depth: u16,
}

// SAFETY: the mapping belongs to no thread, and is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// The request of a tag that the kernel has given us.
    pub(crate) fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "the tag was checked when it arrived");
        // SAFETY: the mapping holds `depth` descriptors and lives as long as this. Volatile, because the kernel writes
        // it; it does so only before it gives the tag.
        unsafe { self.address.as_ptr().add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nobody has a reference into it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).expect("every system has pages")
}
