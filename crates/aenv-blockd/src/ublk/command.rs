//! Submissions of a queue: fetch the first request of a tag, or answer one and fetch the next.

use std::os::fd::RawFd;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use zerocopy::IntoBytes;

use super::abi::{io, IoCommand};

/// Marks the completion that rings the bell of the mailbox; tags are smaller.
pub(crate) const BELL: u64 = u64::MAX;

/// Waits for the first request of a tag.
pub(crate) fn fetch(character: RawFd, queue: u16, tag: u16) -> Entry {
    build(character, io::FETCH, IoCommand { queue, tag, result: -1, address: 0 })
}

/// Answers the request of a tag, and waits for its next.
pub(crate) fn commit(character: RawFd, queue: u16, tag: u16, result: i32) -> Entry {
    build(character, io::COMMIT_AND_FETCH, IoCommand { queue, tag, result, address: 0 })
}

/// Waits for the bell.
pub(crate) fn listen(bell: RawFd) -> Entry {
    opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).build().user_data(BELL)
}

fn build(character: RawFd, operation: u32, command: IoCommand) -> Entry {
    let mut payload = [0; size_of::<IoCommand>()];
    payload.copy_from_slice(command.as_bytes());
    opcode::UringCmd16::new(types::Fd(character), operation)
        .cmd(payload)
        .build()
        .user_data(u64::from(command.tag))
}
