//! What the mount answers to questions about names, attributes and open files. Reading and writing is in `transfer`.

use std::ffi::OsStr;
use std::sync::Arc;

use nix::errno::Errno;
use zerocopy::IntoBytes;

use super::abi::{
    change, open_flag, AttributesOut, DirectoryEntry, EntryOut, OpenIn, OpenOut, SetattrIn, StatfsOut,
    TransferIn, ROOT, UNIQUE_RESEND,
};
use super::answer::Answer;
use super::device::Device;
use super::negotiate::MAX_TRANSFER;
use super::nodes::{root_attributes, Node, Nodes};
use super::request::{Operation, Request};
use super::transfer;
use crate::image::{Content, Unreadable, Use};

/// How long the kernel may believe attributes. They change by growth alone, which is announced.
const ATTRIBUTES_VALID_SECONDS: u64 = 3600;

/// Bytes of directory entries in one answer.
const MAX_LISTING: usize = 64 << 10;

/// Answers requests; shared by all threads.
pub(crate) struct Service {
    pub(crate) nodes: Arc<Nodes>,
    /// Whether the kernel can read plain files by itself.
    pub(crate) passes_through: bool,
}

/// Whether the mount goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It does.
    GoesOn,
    /// The kernel says that it is gone.
    Gone,
}

impl Service {
    /// Deals with one message. `buffer` is for bytes that are read.
    pub(crate) fn serve(&self, device: &Arc<Device>, message: &[u8], buffer: &mut Vec<u8>) -> Outcome {
        let request = match Request::parse(message) {
            Ok(request) => request,
            Err(malformed) => {
                if let Some(unique) = malformed.unique {
                    Answer::new(device, unique).error(Errno::EINVAL);
                }
                return Outcome::GoesOn;
            }
        };
        match request.operation {
            Operation::Silent => Outcome::GoesOn,
            Operation::Destroy => {
                Answer::new(device, request.header.unique).done();
                Outcome::Gone
            }
            _ => {
                self.dispatch(&request, Answer::new(device, request.header.unique), buffer);
                Outcome::GoesOn
            }
        }
    }

    fn dispatch(&self, request: &Request<'_>, answer: Answer, buffer: &mut Vec<u8>) {
        let number = request.header.node;
        match &request.operation {
            Operation::Lookup(name) => self.lookup(name, answer),
            Operation::Getattr if number == ROOT => answer.message(&attributes_out(root_attributes())),
            Operation::Opendir if number == ROOT => answer.message(&OpenOut::default()),
            Operation::Readdir(transfer) if number == ROOT => self.list(transfer, answer),
            Operation::Releasedir => answer.done(),
            Operation::Statfs => answer.message(&self.statfs()),
            Operation::Release(release) => {
                self.nodes.release(release.handle);
                answer.done();
            }
            Operation::Open(open) if number != ROOT => self.open(number, open, answer),
            // The kernel remembers that these are unknown and stops asking.
            Operation::Init(_) | Operation::Unknown => answer.error(Errno::ENOSYS),
            _ => match self.nodes.get(number) {
                Some(node) => serve_file(&node, &request.operation, answer, buffer),
                None if number == ROOT => answer.error(Errno::EISDIR),
                None => answer.error(Errno::ESTALE),
            },
        }
    }

    fn lookup(&self, name: &OsStr, answer: Answer) {
        let Some(node) = name.to_str().and_then(|name| self.nodes.find(name)) else {
            return answer.error(Errno::ENOENT);
        };
        with_size(&Arc::clone(&node), answer, move |size, answer| {
            // Names are asked for again each time, so that no name outlives its image.
            answer.message(&EntryOut {
                node: node.image.serial(),
                attributes_valid: ATTRIBUTES_VALID_SECONDS,
                attributes: node.attributes(size),
                ..EntryOut::default()
            });
        });
    }

    fn open(&self, number: u64, open: &OpenIn, answer: Answer) {
        let is_for_writing = open.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        let handle = answer.unique() & !UNIQUE_RESEND;
        let Some(node) = self.nodes.get(number) else { return answer.error(Errno::ESTALE) };
        let is_refused = !node.image.is_writable() && node.image.purpose() == Use::Disk;
        if is_for_writing && is_refused {
            return answer.error(Errno::EROFS);
        }
        match self.nodes.open(number, handle) {
            None => answer.error(Errno::ESTALE),
            Some((_, false)) => answer.error(Errno::ENFILE),
            Some((node, true)) => {
                let backing = self.backing(&node, answer.device());
                let flags =
                    backing.map_or(open_flags(&node), |_| open_flag::PASSTHROUGH | open_flag::NOFLUSH);
                answer.message(&OpenOut { handle, flags, backing: backing.unwrap_or(0) });
            }
        }
    }

    /// The plain file that the kernel may read by itself. Never one of memory: it is opened for writing too, and the
    /// kernel would then write to the file.
    fn backing(&self, node: &Node, device: &Device) -> Option<i32> {
        let is_safe = node.image.is_plain() && node.image.purpose() == Use::Disk;
        if !self.passes_through || !is_safe {
            return None;
        }
        self.nodes.backing(&node.image, device)
    }

    fn list(&self, transfer: &TransferIn, answer: Answer) {
        let limit = (transfer.size as usize).min(MAX_LISTING);
        let mut bytes = Vec::new();
        let mut behind = transfer.offset.max(ROOT);
        while let Some(node) = self.nodes.next(behind) {
            behind = node.image.serial();
            let name = node.image.name().as_str().as_bytes();
            let entry = DirectoryEntry {
                inode: behind,
                offset: behind,
                name_length: name.len() as u32,
                kind: u32::from(libc::DT_REG),
            };
            let length = (size_of::<DirectoryEntry>() + name.len()).next_multiple_of(8);
            if bytes.len() + length > limit {
                break;
            }
            let end = bytes.len() + length;
            bytes.extend_from_slice(entry.as_bytes());
            bytes.extend_from_slice(name);
            bytes.resize(end, 0);
        }
        answer.bytes(&bytes);
    }

    fn statfs(&self) -> StatfsOut {
        StatfsOut {
            files: self.nodes.count() as u64,
            block_size: MAX_TRANSFER as u32,
            fragment_size: 4096,
            name_length: 96,
            ..StatfsOut::default()
        }
    }
}

/// Writes go straight to the layers. What cannot change stays in the page cache, shared by all who map it.
fn open_flags(node: &Node) -> u32 {
    match node.image.is_writable() {
        true => open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH,
        false => open_flag::KEEP_CACHE | open_flag::NOFLUSH,
    }
}

fn serve_file(node: &Arc<Node>, operation: &Operation<'_>, answer: Answer, buffer: &mut Vec<u8>) {
    let image = &node.image;
    match operation {
        Operation::Getattr => {
            let node = Arc::clone(node);
            with_size(&Arc::clone(&node), answer, move |size, answer| {
                answer.message(&attributes_out(node.attributes(size)));
            });
        }
        Operation::Setattr(wanted) => setattr(node, *wanted, answer),
        Operation::Read(wanted) => transfer::read(image, *wanted, answer, buffer),
        Operation::Write(wanted, bytes) => transfer::write(image, *wanted, bytes, answer),
        Operation::Fsync => transfer::flush(image, answer),
        Operation::Fallocate(wanted) => transfer::fallocate(image, *wanted, answer),
        Operation::Lseek(wanted) => transfer::seek(image, *wanted, answer),
        _ => answer.error(Errno::ENOTDIR),
    }
}

/// Sizes, modes and owners belong to whoever opened the image. Times are not kept, so that setting them is nothing.
fn setattr(node: &Arc<Node>, wanted: SetattrIn, answer: Answer) {
    let node = Arc::clone(node);
    with_size(&Arc::clone(&node), answer, move |size, answer| {
        let is_resize = wanted.valid & change::SIZE != 0 && wanted.size != size;
        if is_resize || wanted.valid & (change::MODE | change::OWNER | change::GROUP) != 0 {
            return answer.error(Errno::EPERM);
        }
        answer.message(&attributes_out(node.attributes(size)));
    });
}

fn with_size(node: &Arc<Node>, answer: Answer, reply: impl FnOnce(u64, Answer) + Send + 'static) {
    let image = &node.image;
    // The size is in memory even when the bytes are far away.
    match image.content_nowait() {
        Some(content) => reply_with_size(content, answer, reply),
        None => {
            let waiting = Arc::clone(image);
            image.pool.submit(Box::new(move |_| reply_with_size(waiting.content(), answer, reply)));
        }
    }
}

fn reply_with_size(content: Result<&Content, Unreadable>, answer: Answer, reply: impl FnOnce(u64, Answer)) {
    match content {
        Ok(content) => reply(content.size(), answer),
        Err(unreadable) => answer.error(unreadable.errno()),
    }
}

fn attributes_out(attributes: super::abi::Attributes) -> AttributesOut {
    AttributesOut { valid: ATTRIBUTES_VALID_SECONDS, attributes, ..AttributesOut::default() }
}
