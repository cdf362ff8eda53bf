//! Header and trailer of a compressed container.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codec::Compression;
use crate::checksum::raw_crc32c;
use crate::error::Damage;

/// The first bytes of a container.
pub(crate) const MAGIC: [u8; 8] = *b"ZFile\0\x01\0";
const SECOND_MAGIC: [u8; 16] = *b"tuji.yyf@Alibaba";

/// Bytes of a header or trailer.
pub(super) const SPACE: usize = 512;

const HEADER: u64 = 1 << 0;
const DATA: u64 = 1 << 1;
const SEALED: u64 = 1 << 2;
const COMPLETE: u64 = 1 << 3;
const DIGEST: u64 = 1 << 4;
const COMPRESSED_INDEX: u64 = 1 << 5;
/// Old writers left stale memory in the bits above.
const KNOWN_FLAGS: u64 = 0x3f;

const SMALLEST_BLOCK: u32 = 4 << 10;
const LARGEST_BLOCK: u32 = 64 << 10;

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// At the front, while the rest is not yet known.
    UnfinishedHeader,
    /// At the front, with everything filled in.
    Header,
    /// At the end.
    Trailer,
}

/// What a header or trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) table_offset: u64,
    pub(super) blocks: u64,
    pub(super) original_size: u64,
    /// None in files of old writers, which had no checksums here.
    pub(super) table_checksum: Option<u32>,
    pub(super) block_size: u32,
    pub(super) compression: Compression,
    pub(super) has_checksums: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    second_magic: [u8; 16],
    size: U32,
    digest: U32,
    flags: U64,
    table_offset: U64,
    blocks: U64,
    original_size: U64,
    table_checksum: U32,
    reserved: U32,
    block_size: U32,
    algorithm: u8,
    level: u8,
    uses_dictionary: u8,
    padding: [u8; 5],
    dictionary_size: U32,
    has_checksums: u8,
    unused: [u8; 7],
}

const RAW_SIZE: usize = size_of::<RawSuperblock>();
const _: () = assert!(RAW_SIZE == 96);

/// Why a header or trailer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Damaged(Damage),
    Unsupported(&'static str),
}

impl From<Damage> for Refusal {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl Superblock {
    /// Reads the first block of a file. None when only the trailer knows.
    pub(super) fn parse_header(block: &[u8; SPACE]) -> Result<Option<Self>, Refusal> {
        let raw = parse_raw(block)?;
        let flags = raw.flags.get() & KNOWN_FLAGS;
        if flags & HEADER == 0 {
            return Err(Damage::Flags.into());
        }
        if flags & COMPLETE == 0 {
            return Ok(None);
        }
        Self::from_raw(raw, flags).map(Some)
    }

    /// Reads the last block of a file.
    pub(super) fn parse_trailer(block: &[u8; SPACE]) -> Result<Self, Refusal> {
        let raw = parse_raw(block)?;
        let flags = raw.flags.get() & KNOWN_FLAGS;
        if flags & (HEADER | SEALED) != SEALED {
            return Err(Damage::Flags.into());
        }
        Self::from_raw(raw, flags)
    }

    fn from_raw(raw: &RawSuperblock, flags: u64) -> Result<Self, Refusal> {
        if flags & COMPRESSED_INDEX != 0 {
            return Err(Refusal::Unsupported("a compressed table of blocks"));
        }
        if raw.uses_dictionary != 0 {
            return Err(Refusal::Unsupported("a compression dictionary"));
        }
        let block_size = raw.block_size.get();
        if !block_size.is_power_of_two() || !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&block_size) {
            return Err(Damage::BlockSize.into());
        }
        Ok(Self {
            table_offset: raw.table_offset.get(),
            blocks: raw.blocks.get(),
            original_size: raw.original_size.get(),
            table_checksum: (flags & DIGEST != 0).then(|| raw.table_checksum.get()),
            block_size,
            compression: Compression::from_number(raw.algorithm).map_err(Refusal::Unsupported)?,
            has_checksums: raw.has_checksums != 0,
        })
    }

    pub(super) fn to_block(self, role: Role) -> [u8; SPACE] {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC;
        raw.second_magic = SECOND_MAGIC;
        raw.size.set(RAW_SIZE as u32);
        raw.flags.set(match role {
            Role::UnfinishedHeader => HEADER | DATA | DIGEST,
            Role::Header => HEADER | DATA | COMPLETE | DIGEST,
            Role::Trailer => DATA | SEALED | DIGEST,
        });
        raw.table_offset.set(self.table_offset);
        raw.blocks.set(self.blocks);
        raw.original_size.set(self.original_size);
        raw.table_checksum.set(self.table_checksum.unwrap_or(0));
        raw.block_size.set(self.block_size);
        raw.algorithm = self.compression.number();
        raw.has_checksums = u8::from(self.has_checksums);
        let mut block = [0; SPACE];
        block[..RAW_SIZE].copy_from_slice(raw.as_bytes());
        raw.digest.set(raw_crc32c(0, &block));
        block[..RAW_SIZE].copy_from_slice(raw.as_bytes());
        block
    }
}

fn parse_raw(block: &[u8; SPACE]) -> Result<&RawSuperblock, Damage> {
    let (raw, rest) = RawSuperblock::ref_from_prefix(block).map_err(|_| Damage::Truncated)?;
    if raw.magic != MAGIC || raw.second_magic != SECOND_MAGIC {
        return Err(Damage::Magic);
    }
    if raw.size.get() as usize != RAW_SIZE {
        return Err(Damage::HeaderSize);
    }
    if raw.flags.get() & DIGEST != 0 {
        let mut copy = RawSuperblock::read_from_bytes(raw.as_bytes()).map_err(|_| Damage::Truncated)?;
        copy.digest.set(0);
        if raw_crc32c(raw_crc32c(0, copy.as_bytes()), rest) != raw.digest.get() {
            return Err(Damage::Checksum);
        }
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Superblock = Superblock {
        table_offset: 829,
        blocks: 2,
        original_size: 5000,
        table_checksum: Some(7),
        block_size: 4096,
        compression: Compression::Lz4,
        has_checksums: true,
    };

    #[test]
    fn test_blocks_read_back_in_their_roles() {
        assert_eq!(Superblock::parse_header(&BLOCK.to_block(Role::Header)), Ok(Some(BLOCK)));
        assert_eq!(Superblock::parse_header(&BLOCK.to_block(Role::UnfinishedHeader)), Ok(None));
        assert_eq!(Superblock::parse_trailer(&BLOCK.to_block(Role::Trailer)), Ok(BLOCK));
        let wrong = Superblock::parse_trailer(&BLOCK.to_block(Role::Header));
        assert_eq!(wrong, Err(Refusal::Damaged(Damage::Flags)));
    }

    #[test]
    fn test_every_flipped_bit_is_refused_while_there_is_a_digest() {
        let written = BLOCK.to_block(Role::Trailer);
        // The bit that says that there is a digest is the one that a digest cannot protect.
        for bit in (0..SPACE * 8).filter(|&bit| bit != 32 * 8 + 4) {
            let mut flipped = written;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::parse_trailer(&flipped).is_err(), "bit {bit}");
        }
    }
}
