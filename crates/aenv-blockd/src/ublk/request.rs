//! What a descriptor asks for, checked. Pure.

use nix::errno::Errno;

use super::abi::{operation, Descriptor, SECTOR_SIZE};

/// Most bytes of one read or write: what buffers hold.
pub(crate) const MAX_TRANSFER: usize = 1 << 20;

/// A request for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Bytes from the disk.
    Read { offset: u64, length: usize },
    /// Bytes for the disk.
    Write { offset: u64, length: usize },
    /// Everything that was acknowledged becomes durable.
    Flush,
    /// The range reads as zeros from now on.
    Zero { offset: u64, length: u64 },
}

impl Request {
    /// Understands a descriptor.
    pub(crate) fn parse(descriptor: &Descriptor) -> Result<Self, Errno> {
        match (descriptor.operation_and_flags & 0xff) as u8 {
            operation::READ => transfer(descriptor).map(|(offset, length)| Self::Read { offset, length }),
            operation::WRITE => transfer(descriptor).map(|(offset, length)| Self::Write { offset, length }),
            // The kernel leaves its range to chance.
            operation::FLUSH => Ok(Self::Flush),
            operation::DISCARD | operation::WRITE_ZEROES => {
                range(descriptor).map(|(offset, length)| Self::Zero { offset, length })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn range(descriptor: &Descriptor) -> Result<(u64, u64), Errno> {
    let length = u64::from(descriptor.count) * SECTOR_SIZE;
    let offset = descriptor.start.checked_mul(SECTOR_SIZE).ok_or(Errno::EINVAL)?;
    offset.checked_add(length).map(|_| (offset, length)).ok_or(Errno::EINVAL)
}

/// A range whose bytes a buffer holds.
fn transfer(descriptor: &Descriptor) -> Result<(u64, usize), Errno> {
    let (offset, length) = range(descriptor)?;
    match usize::try_from(length) {
        Ok(length) if length <= MAX_TRANSFER => Ok((offset, length)),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(operation_and_flags: u32, start: u64, count: u32) -> Descriptor {
        Descriptor { operation_and_flags, count, start, address: 0 }
    }

    #[test]
    fn test_sectors_become_bytes_and_flags_do_not_matter() {
        for (word, expected) in [
            (0, Request::Read { offset: 4096, length: 1024 }),
            (1 | 1 << 13, Request::Write { offset: 4096, length: 1024 }),
            (2, Request::Flush),
            (3, Request::Zero { offset: 4096, length: 1024 }),
            (5 | 1 << 15, Request::Zero { offset: 4096, length: 1024 }),
        ] {
            assert_eq!(Request::parse(&descriptor(word, 8, 2)), Ok(expected));
        }
    }

    #[test]
    fn test_what_is_too_large_or_unknown_is_refused() {
        let most = (MAX_TRANSFER as u64 / SECTOR_SIZE) as u32;
        assert!(Request::parse(&descriptor(1, 0, most)).is_ok());
        assert_eq!(Request::parse(&descriptor(1, 0, most + 1)), Err(Errno::EINVAL));
        assert!(Request::parse(&descriptor(3, 0, most + 1)).is_ok(), "zeros need no buffer");
        assert_eq!(Request::parse(&descriptor(0, u64::MAX / 2, 1)), Err(Errno::EINVAL));
        assert_eq!(Request::parse(&descriptor(2, u64::MAX, 0)), Ok(Request::Flush), "as seen on Linux 6.12");
        assert_eq!(Request::parse(&descriptor(5, u64::MAX / 512, u32::MAX)), Err(Errno::EINVAL));
        for unknown in [4, 10, 17, 255] {
            assert_eq!(Request::parse(&descriptor(unknown, 0, 1)), Err(Errno::EOPNOTSUPP));
        }
    }
}
