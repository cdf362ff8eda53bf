//! The file of a recording: magic, number of ranges, checksum, then offset and length of each. It comes from whoever
//! can name a path, so that it is checked like anything from outside.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::image::{Range, MAX_RANGES};
use crate::refusal::{Kind, Refusal};

const MAGIC: [u8; 8] = *b"AENVTRC1";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    ranges: U32,
    checksum: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    offset: U64,
    length: U64,
}

/// Reads a recording.
pub(crate) fn read(path: &Path) -> Result<Vec<Range>, Refusal> {
    let limit = size_of::<Header>() + MAX_RANGES * size_of::<Record>();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes))
        .map_err(Refusal::file("read", path))?;
    parse(&bytes).ok_or_else(|| Refusal::Background {
        kind: Kind::Corrupt,
        code: "trace_corrupt",
        sentence: format!("{} is not a whole recording", path.display()),
    })
}

/// Writes a recording; what was there before stays until the new one is complete.
pub(crate) fn write(path: &Path, ranges: &[Range]) -> Result<(), Refusal> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let put = || -> io::Result<()> {
        fs::write(part, encode(ranges))?;
        File::open(part)?.sync_all()?;
        fs::rename(part, path)
    };
    put().map_err(Refusal::file("write", path))
}

fn encode(ranges: &[Range]) -> Vec<u8> {
    let records: Vec<Record> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|range| Record { offset: range.offset.into(), length: range.length.into() })
        .collect();
    let body = records.as_bytes();
    let header =
        Header { magic: MAGIC, ranges: (records.len() as u32).into(), checksum: crc32c::crc32c(body).into() };
    [header.as_bytes(), body].concat()
}

fn parse(bytes: &[u8]) -> Option<Vec<Range>> {
    let (header, body) = Header::read_from_prefix(bytes).ok()?;
    let records = <[Record]>::ref_from_bytes(body).ok()?;
    let is_whole = header.magic == MAGIC
        && records.len() <= MAX_RANGES
        && header.ranges.get() as usize == records.len()
        && header.checksum.get() == crc32c::crc32c(body);
    is_whole.then(|| {
        records
            .iter()
            .map(|record| Range { offset: record.offset.get(), length: record.length.get() })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn test_recordings_come_back(pairs in prop::collection::vec(any::<(u64, u64)>(), 0..20), flip in any::<usize>()) {
            let ranges: Vec<Range> =
                pairs.into_iter().map(|(offset, length)| Range { offset, length }).collect();
            let mut bytes = encode(&ranges);
            prop_assert_eq!(parse(&bytes), Some(ranges));
            let at = flip % bytes.len();
            bytes[at] ^= 1;
            prop_assert_eq!(parse(&bytes), None);
            bytes[at] ^= 1;
            bytes.truncate(at);
            prop_assert_eq!(parse(&bytes), None);
        }
    }
}
