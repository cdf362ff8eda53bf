//! One 512-byte header of an archive.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Damage;

/// Bytes of a header and unit of everything in an archive.
pub(super) const RECORD_SIZE: u64 = 512;

/// What follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The bytes of a regular file.
    Regular,
    /// Records about the next member.
    Pax,
    /// Anything else: not what a layer is packed with.
    Other,
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    name: [u8; 100],
    mode: [u8; 8],
    user: [u8; 8],
    group: [u8; 8],
    size: [u8; 12],
    modified: [u8; 12],
    checksum: [u8; 8],
    kind: u8,
    link: [u8; 100],
    magic: [u8; 6],
    version: [u8; 2],
    user_name: [u8; 32],
    group_name: [u8; 32],
    device: [u8; 16],
    prefix: [u8; 155],
    padding: [u8; 12],
}

const _: () = assert!(size_of::<Header>() as u64 == RECORD_SIZE);

impl Header {
    /// Whether the bytes begin like an archive.
    pub(super) fn is_archive(bytes: &[u8]) -> bool {
        Self::ref_from_prefix(bytes)
            .is_ok_and(|(header, _)| header.magic == *b"ustar\0" && header.version == *b"00")
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let (header, _) = Self::read_from_prefix(bytes).map_err(|_| Damage::Truncated)?;
        if !Self::is_archive(bytes) {
            return Err(Damage::ArchiveHeader);
        }
        if octal(&header.checksum)? != u64::from(header.sum()) {
            return Err(Damage::Checksum);
        }
        Ok(header)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.kind {
            b'0' | 0 => Kind::Regular,
            b'x' => Kind::Pax,
            _ => Kind::Other,
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        let name = self.name.split(|&byte| byte == 0).next().unwrap_or_default();
        name.strip_prefix(b"./").unwrap_or(name)
    }

    /// The size field: octal digits, or a binary number when the highest bit is set.
    pub(super) fn size(&self) -> Result<u64, Damage> {
        if self.size[0] & 0x80 == 0 {
            return octal(&self.size);
        }
        let (high, low) = self.size.split_at(4);
        if high != [0x80, 0, 0, 0] {
            return Err(Damage::ArchiveHeader);
        }
        Ok(low.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// The header of extended records of this many bytes.
    pub(super) fn pax(name: &[u8], size: usize) -> Self {
        let mut header = Self::new_zeroed();
        header.name[..name.len()].copy_from_slice(name);
        header.size.copy_from_slice(format!("{size:11o} ").as_bytes());
        header.kind = b'x';
        header.finished(*b"ustar\0", *b"00")
    }

    /// The header of a member whose size stands in extended records.
    pub(super) fn member(name: &[u8], magic: [u8; 6], version: [u8; 2]) -> Self {
        let mut header = Self::pax(name, 0);
        header.kind = b'0';
        header.mode = *b"100644 \0";
        header.user = *b"     0 \0";
        header.group = *b"     0 \0";
        header.modified = *b"          0 ";
        header.user_name[..4].copy_from_slice(b"root");
        header.group_name[..4].copy_from_slice(b"root");
        header.finished(magic, version)
    }

    fn finished(mut self, magic: [u8; 6], version: [u8; 2]) -> Self {
        self.magic = magic;
        self.version = version;
        let checksum = format!("{:6o} \0", self.sum());
        self.checksum.copy_from_slice(checksum.as_bytes());
        self
    }

    /// The sum of all bytes, the checksum itself counted as spaces.
    fn sum(&self) -> u32 {
        let total = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        total(self.as_bytes()) - total(&self.checksum) + 8 * u32::from(b' ')
    }
}

/// Octal digits among spaces, ended by NUL.
fn octal(field: &[u8]) -> Result<u64, Damage> {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default().trim_ascii();
    text.iter().try_fold(0, |value: u64, &byte| match byte {
        b'0'..=b'7' if value >> 61 == 0 => Ok(value << 3 | u64::from(byte - b'0')),
        _ => Err(Damage::ArchiveHeader),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_written_header_reads_back() {
        let header = Header::pax(b"overlaybd.pax", 0o1234);
        let read = Header::parse(header.as_bytes()).unwrap();
        assert_eq!((read.kind(), read.name()), (Kind::Pax, b"overlaybd.pax".as_slice()));
        assert_eq!(read.size(), Ok(0o1234));
    }

    #[test]
    fn test_binary_sizes_are_read_up_to_64_bits() {
        let mut header = Header::pax(b"x", 0);
        header.size = [0x80, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(header.size(), Ok(1 << 40));
        header.size[1] = 1;
        assert_eq!(header.size(), Err(Damage::ArchiveHeader));
    }

    #[test]
    fn test_octal_numbers_never_overflow() {
        assert_eq!(octal(b" 17 \0"), Ok(0o17));
        assert_eq!(octal(b"\0\0"), Ok(0));
        assert_eq!(octal(&[b'7'; 30]), Err(Damage::ArchiveHeader));
        assert_eq!(octal(b"8"), Err(Damage::ArchiveHeader));
    }
}
