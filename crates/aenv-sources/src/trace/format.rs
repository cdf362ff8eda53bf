//! The file of a trace, as the reference writes it: a header of 24 bytes, then 24 bytes per read. Little-endian.
//!
//! Header: magic u32, 4 unused, length of the records u64, CRC-32C of the records without inversion u32, 4 unused.
//! Record: `R`, 3 unused, layer u32, length u64, offset i64.

const MAGIC: u32 = 3_270_449_184;
const HEADER: usize = 24;
const RECORD: usize = 24;
const OPERATION_READ: u8 = b'R';
/// A trace of what a guest reads at its start has some thousands.
const MAX_RECORDS: usize = 1 << 20;

/// A read of a layer, in the address space of the layer without compression and archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// The position of the layer in its stack, from the bottom.
    pub layer: u32,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// Reads in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The reads.
    pub records: Vec<TraceRecord>,
}

/// The bytes are not a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a trace, or a damaged one")]
pub struct InvalidTrace;

impl Trace {
    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut records = Vec::with_capacity(self.records.len() * RECORD);
        for record in &self.records {
            records.extend([OPERATION_READ, 0, 0, 0]);
            records.extend(record.layer.to_le_bytes());
            records.extend(record.length.to_le_bytes());
            records.extend(record.offset.to_le_bytes());
        }
        let mut bytes = Vec::with_capacity(HEADER + records.len());
        bytes.extend(u64::from(MAGIC).to_le_bytes());
        bytes.extend((records.len() as u64).to_le_bytes());
        bytes.extend(u64::from(bare_checksum(&records)).to_le_bytes());
        bytes.extend(records);
        bytes
    }

    /// Reads a file. Bytes after the records are left aside, as the reference does.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidTrace> {
        let header = bytes.get(..HEADER).ok_or(InvalidTrace)?;
        let length = usize::try_from(long(header, 8)).map_err(|_| InvalidTrace)?;
        let records = bytes[HEADER..].get(..length).ok_or(InvalidTrace)?;
        let is_sound = word(header, 0) == MAGIC
            && length % RECORD == 0
            && length / RECORD <= MAX_RECORDS
            && word(header, 16) == bare_checksum(records);
        if !is_sound {
            return Err(InvalidTrace);
        }
        let records = records.chunks_exact(RECORD).map(parse_record).collect::<Result<_, _>>()?;
        Ok(Self { records })
    }
}

fn parse_record(bytes: &[u8]) -> Result<TraceRecord, InvalidTrace> {
    let record = TraceRecord { layer: word(bytes, 4), length: long(bytes, 8), offset: long(bytes, 16) };
    // The offset is signed in the file, and the end of the read must be countable.
    let end = record.offset.checked_add(record.length);
    if bytes[0] != OPERATION_READ || end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(InvalidTrace);
    }
    Ok(record)
}

/// CRC-32C with the register not inverted at either end; the crate inverts at both.
fn bare_checksum(bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let record = |number: u64| TraceRecord { layer: number as u32, offset: number << 40, length: number };
        Trace { records: (0..5).map(record).collect() }
    }

    #[test]
    fn a_trace_reads_back_as_written() {
        let bytes = trace().encode();
        assert_eq!((bytes.len(), &bytes[..4], bytes[24]), (24 * 6, &MAGIC.to_le_bytes()[..], b'R'));
        assert_eq!(Trace::parse(&bytes), Ok(trace()));
        assert_eq!(Trace::parse(&Trace::default().encode()), Ok(Trace::default()));
        assert_eq!(Trace::parse(&[bytes, vec![7; 9]].concat()), Ok(trace()));
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = trace().encode();
        for length in 0..bytes.len() {
            assert_eq!(Trace::parse(&bytes[..length]), Err(InvalidTrace));
        }
        for at in (0..4).chain(8..20).chain(24..bytes.len()) {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(Trace::parse(&broken), Err(InvalidTrace), "byte {at}");
        }
        let beyond = TraceRecord { layer: 0, offset: i64::MAX as u64, length: 1 };
        assert_eq!(Trace::parse(&Trace { records: vec![beyond] }.encode()), Err(InvalidTrace));
    }
}
