//! Writing an archive around a payload whose length is known only afterwards.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::header::{Header, RECORD_SIZE};
use super::{MEMBER_NAME, PAX_NAME, UNFINISHED_NAME};
use crate::error::LayerError;
use crate::storage::{File, FileHandle};
use crate::writer::FileSink;

/// Where the payload begins: behind a header, its records and the header of the member.
const PAYLOAD_OFFSET: u64 = 3 * RECORD_SIZE;

/// An archive that is being written.
pub struct TarWriter {
    file: FileHandle,
}

impl TarWriter {
    /// Starts an archive in an empty file; the payload goes into the sink. An unfinished file is not an archive.
    pub fn begin(name: &str, file: Arc<dyn File>) -> Result<(Self, FileSink), LayerError> {
        let sink = FileSink::new(name, Arc::clone(&file), PAYLOAD_OFFSET);
        let file = FileHandle::new(Arc::from(name), file);
        let unfinished = Header::member(UNFINISHED_NAME, *b"xxtar\0", *b"xx");
        file.write_all(2 * RECORD_SIZE, unfinished.as_bytes())?;
        Ok((Self { file }, sink))
    }

    /// Completes the archive around a payload of this many bytes.
    pub fn finish(self, length: u64) -> Result<(), LayerError> {
        let padding = (length.next_multiple_of(RECORD_SIZE) - length + 2 * RECORD_SIZE) as usize;
        self.file.write_all(PAYLOAD_OFFSET + length, &vec![0; padding])?;
        let record = size_record(length);
        let mut front = Header::pax(PAX_NAME, record.len()).as_bytes().to_vec();
        front.extend_from_slice(record.as_bytes());
        front.resize(2 * RECORD_SIZE as usize, 0);
        front.extend_from_slice(Header::member(MEMBER_NAME, *b"ustar\0", *b"00").as_bytes());
        self.file.write_all(0, &front)
    }
}

/// A record counts its own digits.
fn size_record(length: u64) -> String {
    let body = format!(" size={length}\n");
    let digits = (1..).find(|&digits| (body.len() + digits).to_string().len() == digits);
    let total = body.len() + digits.expect("a number of digits fits itself");
    format!("{total}{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_record_counts_itself() {
        for length in [0, 9, 10, 12_345, 9_999_999_999, u64::MAX] {
            let record = size_record(length);
            assert!(record.starts_with(&format!("{} size={length}", record.len())), "{record:?}");
        }
        assert_eq!(size_record(1), "9 size=1\n");
        assert_eq!(size_record(12), "11 size=12\n");
    }
}
