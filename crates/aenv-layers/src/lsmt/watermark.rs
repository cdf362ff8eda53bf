//! Durability marks: how much of a log may be believed after the host died. They live in the padding of the index
//! header, where other readers do not look, so that they travel with the file when it is replaced.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Entry;
use crate::limits::BLOCK_SIZE;
use crate::storage::BootId;

/// Where the two slots lie in the header; they are written in turn, each within one sector.
const SLOT_OFFSETS: [u64; 2] = [1024, 1536];

/// Bytes of a slot.
pub(crate) const SLOT_SIZE: usize = 512;

const MAGIC: [u8; 8] = *b"AENVWMK1";
const CLOSED: u8 = 1;

/// A promise about the durable part of a writable layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watermark {
    /// Counts marks; the highest valid one rules.
    pub(crate) sequence: u64,
    /// Bytes of the index file, header included, whose data is durable. The records themselves need not be, since
    /// the mark is written out together with them: the checksum tells.
    pub(crate) index_length: u64,
    /// Bytes of the index file that were durable before this mark was written.
    pub(crate) confirmed_length: u64,
    /// CRC-32C of the index file between the two.
    pub(crate) records_checksum: u32,
    /// Bytes of the data file that were durable then.
    pub(crate) data_length: u64,
    /// The life of the host in which the mark was written.
    pub(crate) boot: BootId,
    /// Whether the layer was closed with this mark. Records behind it were then written by a foreign program.
    pub(crate) is_closed: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSlot {
    magic: [u8; 8],
    sequence: U64,
    index_length: U64,
    confirmed_length: U64,
    data_length: U64,
    boot: [u8; 16],
    flags: u8,
    reserved: [u8; 3],
    records_checksum: U32,
    checksum: U32,
}

const RAW_SIZE: usize = size_of::<RawSlot>();
const CHECKED: usize = RAW_SIZE - size_of::<U32>();

impl Watermark {
    /// The mark of a log that is durable as a whole.
    pub(crate) fn of_durable(sequence: u64, index_length: u64, data_length: u64, boot: BootId) -> Self {
        Self {
            sequence,
            index_length,
            confirmed_length: index_length,
            records_checksum: 0,
            data_length,
            boot,
            is_closed: false,
        }
    }

    /// Which of the two slots this mark belongs into.
    pub(crate) fn slot_offset(&self) -> u64 {
        SLOT_OFFSETS[(self.sequence % 2) as usize]
    }

    pub(crate) fn to_slot(self) -> [u8; SLOT_SIZE] {
        let mut raw = RawSlot {
            magic: MAGIC,
            sequence: U64::new(self.sequence),
            index_length: U64::new(self.index_length),
            confirmed_length: U64::new(self.confirmed_length),
            data_length: U64::new(self.data_length),
            boot: self.boot.0,
            flags: if self.is_closed { CLOSED } else { 0 },
            reserved: [0; 3],
            records_checksum: U32::new(self.records_checksum),
            checksum: U32::new(0),
        };
        raw.checksum = U32::new(crc32c::crc32c(&raw.as_bytes()[..CHECKED]));
        let mut slot = [0; SLOT_SIZE];
        slot[..RAW_SIZE].copy_from_slice(raw.as_bytes());
        slot
    }

    /// Reads a slot; anything but a complete mark is none.
    fn from_slot(slot: &[u8]) -> Option<Self> {
        let (raw, _) = RawSlot::ref_from_prefix(slot).ok()?;
        if raw.magic != MAGIC || raw.checksum.get() != crc32c::crc32c(&slot[..CHECKED]) {
            return None;
        }
        let lengths = [raw.confirmed_length.get(), raw.index_length.get()];
        let is_whole = |length: u64| length >= BLOCK_SIZE && length % Entry::SIZE as u64 == 0;
        if !lengths.is_sorted() || !lengths.into_iter().all(is_whole) {
            return None;
        }
        Some(Self {
            sequence: raw.sequence.get(),
            index_length: raw.index_length.get(),
            confirmed_length: raw.confirmed_length.get(),
            records_checksum: raw.records_checksum.get(),
            data_length: raw.data_length.get(),
            boot: BootId(raw.boot),
            is_closed: raw.flags & CLOSED != 0,
        })
    }
}

/// The mark that rules in the header block of an index file, if there is any.
pub(crate) fn newest(header: &[u8]) -> Option<Watermark> {
    SLOT_OFFSETS
        .iter()
        .filter_map(|&offset| Watermark::from_slot(header.get(offset as usize..)?))
        .max_by_key(|mark| mark.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64) -> Watermark {
        Watermark {
            sequence,
            index_length: 4096 + 16 * sequence,
            confirmed_length: 4096,
            records_checksum: 99,
            data_length: 8192,
            boot: BootId([3; 16]),
            is_closed: sequence % 3 == 0,
        }
    }

    fn header_with(marks: &[Watermark]) -> Vec<u8> {
        let mut header = vec![0; 4096];
        for mark in marks {
            let at = mark.slot_offset() as usize;
            header[at..at + SLOT_SIZE].copy_from_slice(&mark.to_slot());
        }
        header
    }

    #[test]
    fn test_the_highest_valid_mark_rules() {
        assert_eq!(newest(&header_with(&[])), None);
        assert_eq!(newest(&header_with(&[mark(1)])), Some(mark(1)));
        assert_eq!(newest(&header_with(&[mark(5), mark(6)])), Some(mark(6)));
        assert_eq!(newest(&header_with(&[mark(8), mark(7)])), Some(mark(8)));
    }

    #[test]
    fn test_a_damaged_mark_leaves_the_older_one() {
        let at = SLOT_OFFSETS[0] as usize;
        for bit in 0..RAW_SIZE * 8 {
            let mut header = header_with(&[mark(5), mark(6)]);
            header[at + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(newest(&header), Some(mark(5)), "bit {bit}");
        }
    }
}
