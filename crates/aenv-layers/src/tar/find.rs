//! Finding the one member of an archive without reading it.

use std::sync::Arc;

use super::header::{Header, Kind, RECORD_SIZE};
use super::MEMBER_NAME;
use crate::error::{Damage, LayerError};
use crate::storage::{ReadAt, SourceHandle};

/// Headers before the payload.
const MAX_HEADERS: usize = 4;

/// Bytes of the records about a member.
const MAX_PAX_BYTES: u64 = 64 << 10;

/// Where the packed layer lies: its offset and length. None when the source does not begin like an archive.
pub fn find_member(name: &str, source: Arc<dyn ReadAt>) -> Result<Option<(u64, u64)>, LayerError> {
    let source = SourceHandle::new(Arc::from(name), source);
    let length = source.length()?;
    if length < RECORD_SIZE || !Header::is_archive(&read_record(&source, 0)?) {
        return Ok(None);
    }
    let mut position = 0;
    let mut pax_size = None;
    for _ in 0..MAX_HEADERS {
        let header = Header::parse(&read_record(&source, position)?)
            .map_err(|damage| source.damaged(position, damage))?;
        let size = header.size().map_err(|damage| source.damaged(position, damage))?;
        let content = position + RECORD_SIZE;
        match header.kind() {
            Kind::Pax => {
                pax_size = read_pax_size(&source, content, size)?.or(pax_size);
                position = content + size.next_multiple_of(RECORD_SIZE);
            }
            Kind::Regular if header.name() == MEMBER_NAME => {
                let size = pax_size.filter(|&size| size > 0).unwrap_or(size);
                check_rest(&source, content, size, length)?;
                return Ok(Some((content, size)));
            }
            Kind::Regular | Kind::Other => return Err(source.damaged(position, Damage::ArchiveMembers)),
        }
    }
    Err(source.damaged(position, Damage::ArchiveMembers))
}

fn read_record(source: &SourceHandle, offset: u64) -> Result<[u8; RECORD_SIZE as usize], LayerError> {
    let mut record = [0; RECORD_SIZE as usize];
    source.read_exact(offset, &mut record)?;
    Ok(record)
}

/// The payload must lie within the file, and nothing but zeros may follow where another header could stand.
fn check_rest(source: &SourceHandle, content: u64, size: u64, length: u64) -> Result<(), LayerError> {
    if size > length - content.min(length) {
        return Err(source.damaged(content, Damage::Truncated));
    }
    let next = content + size.next_multiple_of(RECORD_SIZE);
    if next + RECORD_SIZE <= length && read_record(source, next)?.iter().any(|&byte| byte != 0) {
        return Err(source.damaged(next, Damage::ArchiveMembers));
    }
    Ok(())
}

fn read_pax_size(source: &SourceHandle, offset: u64, size: u64) -> Result<Option<u64>, LayerError> {
    LayerError::limit(&source.name, "length of the archive's records", size, MAX_PAX_BYTES)?;
    let mut records = vec![0; size as usize];
    source.read_exact(offset, &mut records)?;
    parse_pax_size(&records).map_err(|damage| source.damaged(offset, damage))
}

/// Records are `"<length> <key>=<value>\n"`, where the length counts the whole record.
fn parse_pax_size(mut records: &[u8]) -> Result<Option<u64>, Damage> {
    let mut size = None;
    while !records.is_empty() {
        let space = records.iter().position(|&byte| byte == b' ').ok_or(Damage::ArchiveHeader)?;
        let length = decimal(&records[..space])?;
        let length = usize::try_from(length).map_err(|_| Damage::ArchiveHeader)?;
        let body = records.get(space + 1..length).ok_or(Damage::ArchiveHeader)?;
        let body = body.strip_suffix(b"\n").ok_or(Damage::ArchiveHeader)?;
        if let Some(value) = body.strip_prefix(b"size=") {
            size = Some(decimal(value)?);
        }
        records = &records[length..];
    }
    Ok(size)
}

fn decimal(text: &[u8]) -> Result<u64, Damage> {
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(Damage::ArchiveHeader);
    }
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Damage::ArchiveHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_size_is_found_among_other_records() {
        assert_eq!(parse_pax_size(b"20 path=overlaybd.x\n14 size=12345\n"), Ok(Some(12345)));
        assert_eq!(parse_pax_size(b""), Ok(None));
    }

    #[test]
    fn test_broken_records_are_refused() {
        for records in
            ["13 size=12345\n", "14 size=1234x\n", "0 \n", "x", "99 size=1\n", "14 size=12345 ", " \n"]
        {
            assert_eq!(parse_pax_size(records.as_bytes()), Err(Damage::ArchiveHeader), "{records:?}");
        }
    }
}
