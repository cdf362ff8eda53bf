//! Header and trailer of a layer file: the same 390 bytes in different roles.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layer_id::{LayerId, FIELD_SIZE};
use crate::error::Damage;
use crate::limits::BLOCK_SIZE;

/// The first bytes of every layer file.
pub(crate) const MAGIC: [u8; 8] = *b"LSMT\0\x01\x02\0";
const SECOND_MAGIC: [u8; 16] =
    [0x65, 0x7e, 0x63, 0xd2, 0x94, 0x44, 0x08, 0x4c, 0xa2, 0xd2, 0xc8, 0xec, 0x4f, 0xcf, 0xae, 0x8a];

const HEADER: u32 = 1 << 0;
const DATA: u32 = 1 << 1;
const SEALED: u32 = 1 << 2;
const SPARSE: u32 = 1 << 4;

/// Where a block stands, which decides about its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// First block of a committed layer.
    SealedHeader,
    /// Last block of a sealed layer; the only one that counts there.
    Trailer,
    /// First block of the data file of a writable layer; it stays when the layer is sealed in place.
    DataHeader,
    /// First block of the index file of a writable layer.
    IndexHeader,
}

/// What a header or trailer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) index_offset: u64,
    pub(crate) index_entries: u64,
    pub(crate) virtual_size: u64,
    pub(crate) id: LayerId,
    pub(crate) parent: LayerId,
    /// Free text of whoever made the layer, without trailing NULs.
    pub(crate) tag: Vec<u8>,
    /// Whether the file uses the layout that loses discards. Readers of sealed layers need not care.
    pub(crate) is_sparse: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    second_magic: [u8; 16],
    size: U32,
    flags: U32,
    index_offset: U64,
    index_entries: U64,
    virtual_size: U64,
    id: [u8; FIELD_SIZE],
    parent: [u8; FIELD_SIZE],
    reserved: [u8; 2],
    version: u8,
    sub_version: u8,
    tag: [u8; Superblock::MAX_TAG],
}

const RAW_SIZE: usize = size_of::<RawSuperblock>();
const _: () = assert!(RAW_SIZE == 390);

impl Superblock {
    /// Where the size of the disk stands in a block.
    pub(crate) const VIRTUAL_SIZE_OFFSET: u64 = 48;

    /// Longest tag.
    pub(crate) const MAX_TAG: usize = 256;

    /// Reads the block that was found in a role.
    pub(crate) fn parse(block: &[u8], role: Role) -> Result<Self, Damage> {
        let (raw, _) = RawSuperblock::ref_from_prefix(block).map_err(|_| Damage::Truncated)?;
        if raw.magic != MAGIC || raw.second_magic != SECOND_MAGIC {
            return Err(Damage::Magic);
        }
        if raw.size.get() as usize != RAW_SIZE {
            return Err(Damage::HeaderSize);
        }
        let flags = raw.flags.get();
        let (relevant, wanted) = match role {
            // A header says nothing about being sealed: sealing in place only appends.
            Role::SealedHeader | Role::DataHeader => (HEADER | DATA, HEADER | DATA),
            Role::Trailer => (HEADER | DATA | SEALED, DATA | SEALED),
            Role::IndexHeader => (HEADER | DATA, HEADER),
        };
        if flags & relevant != wanted {
            return Err(Damage::Flags);
        }
        let tag_length = raw.tag.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Ok(Self {
            index_offset: raw.index_offset.get(),
            index_entries: raw.index_entries.get(),
            virtual_size: raw.virtual_size.get(),
            id: LayerId::from_field(&raw.id)?,
            parent: LayerId::from_field(&raw.parent)?,
            tag: raw.tag[..tag_length].to_vec(),
            is_sparse: flags & SPARSE != 0,
        })
    }

    /// The 4 KiB block for a role. A tag longer than `MAX_TAG` is a mistake of the caller.
    pub(crate) fn to_block(&self, role: Role) -> [u8; BLOCK_SIZE as usize] {
        let flags = match role {
            Role::SealedHeader => HEADER | DATA | SEALED,
            Role::Trailer => DATA | SEALED,
            Role::DataHeader => HEADER | DATA,
            Role::IndexHeader => HEADER,
        };
        let mut tag = [0; Self::MAX_TAG];
        tag[..self.tag.len()].copy_from_slice(&self.tag);
        let raw = RawSuperblock {
            magic: MAGIC,
            second_magic: SECOND_MAGIC,
            size: U32::new(RAW_SIZE as u32),
            flags: U32::new(flags),
            index_offset: U64::new(self.index_offset),
            index_entries: U64::new(self.index_entries),
            virtual_size: U64::new(self.virtual_size),
            id: self.id.to_field(),
            parent: self.parent.to_field(),
            reserved: [0; 2],
            version: 1,
            sub_version: 1,
            tag,
        };
        let mut block = [0; BLOCK_SIZE as usize];
        block[..RAW_SIZE].copy_from_slice(raw.as_bytes());
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_block_reads_back_in_its_role_only() {
        let block = Superblock {
            index_offset: 4096,
            index_entries: 256,
            virtual_size: 1 << 40,
            id: LayerId([7; 16]),
            parent: LayerId([9; 16]),
            tag: b"two".to_vec(),
            is_sparse: false,
        };
        let written = block.to_block(Role::Trailer);
        assert_eq!(Superblock::parse(&written, Role::Trailer), Ok(block));
        assert_eq!(Superblock::parse(&written, Role::SealedHeader), Err(Damage::Flags));
        assert_eq!(Superblock::parse(&written, Role::IndexHeader), Err(Damage::Flags));
    }

    #[test]
    fn test_every_bit_of_magic_and_size_counts() {
        let written = Superblock::default().to_block(Role::DataHeader);
        for bit in 0..28 * 8 {
            let mut flipped = written;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::parse(&flipped, Role::DataHeader).is_err(), "bit {bit}");
        }
        assert_eq!(Superblock::parse(&written[..389], Role::DataHeader), Err(Damage::Truncated));
    }
}
