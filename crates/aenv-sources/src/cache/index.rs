//! The file that says which chunks of a blob are durably in the cache, and their checksums. A broken one is no error:
//! the chunks are fetched again.
//!
//! Little-endian: magic 8, version u32, chunk size u32, blob size u64, digest 32, last use u64 (seconds since 1970),
//! flags u32, CRC-32C u32 of everything else; then one bit per chunk, then a CRC-32C u32 per chunk.

use super::geometry::Geometry;
use crate::digest::Digest;

const MAGIC: [u8; 8] = *b"AENVCHNK";
const VERSION: u32 = 1;
const HEADER: usize = 72;
const CHECKSUM_AT: usize = 68;
const FLAG_WHOLE: u32 = 1;
const KNOWN_FLAGS: u32 = FLAG_WHOLE;

/// What is known of a blob's chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) geometry: Geometry,
    pub(crate) digest: Digest,
    /// Seconds since 1970.
    pub(crate) last_used: u64,
    /// All chunks together were found to have the digest.
    pub(crate) is_whole: bool,
    /// The checksum of each chunk that is there.
    pub(crate) sums: Vec<Option<u32>>,
}

impl Index {
    /// How many bytes the index of a blob has.
    pub(crate) fn length(geometry: Geometry) -> usize {
        let count = geometry.count() as usize;
        HEADER + count.div_ceil(8) + 4 * count
    }

    /// The bytes of the chunks that are there.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let stored = (0..self.geometry.count()).filter(|&chunk| self.sums[chunk as usize].is_some());
        stored.map(|chunk| self.geometry.length(chunk)).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::length(self.geometry));
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.geometry.chunk_bytes().to_le_bytes());
        bytes.extend(self.geometry.size().to_le_bytes());
        bytes.extend(self.digest.as_bytes());
        bytes.extend(self.last_used.to_le_bytes());
        bytes.extend(if self.is_whole { FLAG_WHOLE } else { 0 }.to_le_bytes());
        bytes.extend([0; 4]);
        let bit = |group: &[Option<u32>]| {
            group.iter().enumerate().map(|(at, sum)| u8::from(sum.is_some()) << at).sum::<u8>()
        };
        bytes.extend(self.sums.chunks(8).map(bit));
        bytes.extend(self.sums.iter().flat_map(|sum| sum.unwrap_or_default().to_le_bytes()));
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..HEADER].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// None when the bytes are not exactly what `encode` writes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let geometry = Self::parse_geometry(bytes)?;
        // Compared before anything is allocated for it.
        if bytes.len() != Self::length(geometry) || checksum(bytes) != word(bytes, CHECKSUM_AT)? {
            return None;
        }
        let flags = word(bytes, 64)?;
        let count = geometry.count() as usize;
        let (bits, sums) = bytes[HEADER..].split_at(count.div_ceil(8));
        let is_there = |chunk: usize| bits[chunk / 8] >> (chunk % 8) & 1 == 1;
        let sums = (0..count).map(|chunk| is_there(chunk).then(|| word(sums, 4 * chunk)).flatten()).collect();
        Some(Self {
            geometry,
            digest: Digest::from_bytes(bytes[24..56].try_into().ok()?),
            last_used: u64::from_le_bytes(bytes[56..64].try_into().ok()?),
            is_whole: flags & FLAG_WHOLE != 0,
            sums,
        })
        .filter(|index| {
            flags & !KNOWN_FLAGS == 0 && (!index.is_whole || index.sums.iter().all(Option::is_some))
        })
    }

    /// The division that the header speaks of, so that a reader knows how long the file must be.
    pub(crate) fn parse_geometry(header: &[u8]) -> Option<Geometry> {
        if header.get(..8)? != MAGIC || word(header, 8)? != VERSION {
            return None;
        }
        Geometry::new(u64::from_le_bytes(header.get(16..24)?.try_into().ok()?), word(header, 12)?)
    }
}

/// Over everything but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &bytes[HEADER..])
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(sums: Vec<Option<u32>>) -> Index {
        let geometry = Geometry::new(4096 * sums.len() as u64 - 7, 4096).unwrap();
        let is_whole = sums.iter().all(Option::is_some);
        Index { geometry, digest: Digest::from_bytes([9; 32]), last_used: 77, is_whole, sums }
    }

    #[test]
    fn an_index_reads_back_as_written() {
        for sums in [vec![Some(1)], vec![None; 8], (0..21).map(|n| (n % 3 > 0).then_some(n)).collect()] {
            let index = index(sums);
            assert_eq!(Index::parse(&index.encode()), Some(index));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_noticed() {
        let bytes = index((0..21).map(|n| (n % 3 > 0).then_some(n)).collect()).encode();
        for at in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[at / 8] ^= 1 << (at % 8);
            assert_eq!(Index::parse(&broken), None, "bit {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Index::parse(&bytes[..length]), None);
        }
        assert_eq!(Index::parse(&[bytes, vec![0]].concat()), None);
    }
}
