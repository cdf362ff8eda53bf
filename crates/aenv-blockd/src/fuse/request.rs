//! Requests of the kernel taken apart. Total: any bytes give a request or an error; nothing is done here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::FromBytes;

use super::abi::{
    opcode, FallocateIn, InitIn, LseekIn, OpenIn, ReleaseIn, RequestHeader, SetattrIn, TransferIn,
};

/// A request and who asks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Number of the request, node, user.
    pub(crate) header: RequestHeader,
    /// What is asked.
    pub(crate) operation: Operation<'a>,
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// The first request of a mount.
    Init(InitIn),
    /// Which node has this name.
    Lookup(&'a OsStr),
    /// Attributes of a node.
    Getattr,
    /// Change of attributes.
    Setattr(SetattrIn),
    /// A process opens a file.
    Open(OpenIn),
    /// The last user of an open file is gone.
    Release(ReleaseIn),
    /// Reading a file.
    Read(TransferIn),
    /// Writing these bytes.
    Write(TransferIn, &'a [u8]),
    /// Making a file durable.
    Fsync,
    /// Discarding or allocating a range.
    Fallocate(FallocateIn),
    /// Looking for data or holes.
    Lseek(LseekIn),
    /// Sizes of the file system.
    Statfs,
    /// A process opens the directory.
    Opendir,
    /// Listing the directory.
    Readdir(TransferIn),
    /// The directory is closed.
    Releasedir,
    /// Expects no answer: the kernel forgot nodes, or lost interest in an answer.
    Silent,
    /// The mount is gone.
    Destroy,
    /// None of the above.
    Unknown,
}

/// A request that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is malformed")]
pub(crate) struct Malformed {
    /// The number to answer to; none when not even the header is there.
    pub(crate) unique: Option<u64>,
}

impl<'a> Request<'a> {
    /// Takes one message apart.
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let (header, body) =
            RequestHeader::read_from_prefix(message).map_err(|_| Malformed { unique: None })?;
        if header.length as usize != message.len() {
            return Err(Malformed { unique: Some(header.unique) });
        }
        let operation =
            parse_operation(header.opcode, body).ok_or(Malformed { unique: Some(header.unique) })?;
        Ok(Self { header, operation })
    }
}

fn parse_operation(number: u32, body: &[u8]) -> Option<Operation<'_>> {
    Some(match number {
        opcode::INIT => Operation::Init(InitIn::read_from_prefix(&padded(body)).ok()?.0),
        opcode::LOOKUP => Operation::Lookup(name(body)?),
        opcode::GETATTR => Operation::Getattr,
        opcode::SETATTR => Operation::Setattr(read(body)?),
        opcode::OPEN => Operation::Open(read(body)?),
        opcode::RELEASE => Operation::Release(read(body)?),
        opcode::READ => Operation::Read(read(body)?),
        opcode::WRITE => {
            let (transfer, bytes) = TransferIn::read_from_prefix(body).ok()?;
            Operation::Write(transfer, bytes.get(..transfer.size as usize)?)
        }
        opcode::FSYNC => Operation::Fsync,
        opcode::FALLOCATE => Operation::Fallocate(read(body)?),
        opcode::LSEEK => Operation::Lseek(read(body)?),
        opcode::STATFS => Operation::Statfs,
        opcode::OPENDIR => Operation::Opendir,
        opcode::READDIR => Operation::Readdir(read(body)?),
        opcode::RELEASEDIR => Operation::Releasedir,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Operation::Silent,
        opcode::DESTROY => Operation::Destroy,
        _ => Operation::Unknown,
    })
}

fn read<T: FromBytes>(body: &[u8]) -> Option<T> {
    T::read_from_prefix(body).ok().map(|(value, _)| value)
}

/// Older kernels send a shorter INIT; what is missing counts as zero.
fn padded(body: &[u8]) -> [u8; size_of::<InitIn>()] {
    let mut bytes = [0; size_of::<InitIn>()];
    let length = body.len().min(bytes.len());
    bytes[..length].copy_from_slice(&body[..length]);
    bytes
}

fn name(body: &[u8]) -> Option<&OsStr> {
    let end = body.iter().position(|&byte| byte == 0)?;
    Some(OsStr::from_bytes(&body[..end]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn message(number: u32, body: &[u8]) -> Vec<u8> {
        let length = (size_of::<RequestHeader>() + body.len()) as u32;
        let header = RequestHeader { length, opcode: number, unique: 9, node: 2, ..RequestHeader::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn test_writes_carry_exactly_the_bytes_they_announce() {
        let transfer = TransferIn { offset: 512, size: 3, ..TransferIn::default() };
        let body = [transfer.as_bytes(), b"abc"].concat();
        let whole = message(opcode::WRITE, &body);
        let request = Request::parse(&whole).unwrap();
        assert_eq!(request.operation, Operation::Write(transfer, b"abc"));
        let short = message(opcode::WRITE, &body[..body.len() - 1]);
        assert_eq!(Request::parse(&short), Err(Malformed { unique: Some(9) }));
    }

    #[test]
    fn test_a_name_ends_at_its_zero() {
        let whole = message(opcode::LOOKUP, b"disk\0");
        assert_eq!(Request::parse(&whole).unwrap().operation, Operation::Lookup(OsStr::new("disk")));
        assert_eq!(Request::parse(&message(opcode::LOOKUP, b"disk")), Err(Malformed { unique: Some(9) }));
    }

    proptest! {
        #[test]
        fn test_any_bytes_are_a_request_or_an_error(
            number in 0u32..60,
            body in prop::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..64,
        ) {
            let whole = message(number, &body);
            let _ = Request::parse(&whole);
            prop_assert!(Request::parse(&whole[..cut.min(whole.len() - 1)]).is_err());
        }
    }
}
