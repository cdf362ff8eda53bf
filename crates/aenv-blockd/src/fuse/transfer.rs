//! Reading and writing files of the mount. What may wait for a network or a disk goes to the image's own threads; the
//! rest is done on the spot, from the kernel's buffer into the layer and back, without another copy.

use std::sync::Arc;

use nix::errno::Errno;

use super::abi::{FallocateIn, LseekIn, LseekOut, TransferIn, WriteOut};
use super::answer::Answer;
use super::negotiate::MAX_TRANSFER;
use crate::image::{AccessError, Content, Image, Target, READ_MARGIN};

const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;

pub(crate) fn read(image: &Arc<Image>, wanted: TransferIn, answer: Answer, buffer: &mut Vec<u8>) {
    if wanted.size as usize > MAX_TRANSFER {
        return answer.error(Errno::EINVAL);
    }
    if let Some(content) = image.content_at_once() {
        return read_from(image, content, wanted, answer, buffer);
    }
    let waiting = Arc::clone(image);
    image.pool.submit(Box::new(move |buffer| match waiting.content() {
        Ok(content) => read_from(&waiting, content, wanted, answer, buffer),
        Err(unreadable) => answer.error(unreadable.errno()),
    }));
}

fn read_from(image: &Image, content: &Content, wanted: TransferIn, answer: Answer, buffer: &mut Vec<u8>) {
    let length = wanted.size as usize;
    if buffer.len() < length + READ_MARGIN {
        buffer.resize(length + READ_MARGIN, 0);
    }
    match content.read(wanted.offset, length, buffer) {
        Ok(bytes) => {
            image.counters.count_read(bytes.len());
            image.recorder.note(wanted.offset, bytes.len() as u64);
            answer.bytes(bytes);
        }
        Err(error) => fail(image, "read", wanted.offset, &error, answer),
    }
}

pub(crate) fn write(image: &Arc<Image>, wanted: TransferIn, bytes: &[u8], answer: Answer) {
    if let Some(content) = image.content_at_once() {
        return write_to(image, content, wanted.offset, bytes, answer);
    }
    let waiting = Arc::clone(image);
    let bytes = bytes.to_vec();
    image.pool.submit(Box::new(move |_| match waiting.content() {
        Ok(content) => write_to(&waiting, content, wanted.offset, &bytes, answer),
        Err(unreadable) => answer.error(unreadable.errno()),
    }));
}

fn write_to(image: &Image, content: &Content, offset: u64, bytes: &[u8], answer: Answer) {
    match content.write(offset, bytes) {
        Ok(()) => {
            image.counters.count_write(bytes.len());
            answer.message(&WriteOut { size: bytes.len() as u32, padding: 0 });
        }
        Err(error) => fail(image, "write", offset, &error, answer),
    }
}

pub(crate) fn flush(image: &Arc<Image>, answer: Answer) {
    if !image.is_writable() {
        return answer.done();
    }
    let waiting = Arc::clone(image);
    image.pool.submit(Box::new(move |_| {
        let content = match waiting.content() {
            Ok(content) => content,
            Err(unreadable) => return answer.error(unreadable.errno()),
        };
        match content.flush() {
            Ok(()) => {
                waiting.counters.count_flush();
                answer.done();
            }
            Err(error) => fail(&waiting, "flush", 0, &error, answer),
        }
    }));
}

pub(crate) fn fallocate(image: &Arc<Image>, wanted: FallocateIn, answer: Answer) {
    if !image.is_writable() {
        return answer.error(Errno::EROFS);
    }
    // Space is not promised, so that the other modes would be lies.
    if wanted.mode != PUNCH_HOLE | KEEP_SIZE && wanted.mode & !KEEP_SIZE != ZERO_RANGE {
        return answer.error(Errno::EOPNOTSUPP);
    }
    let waiting = Arc::clone(image);
    let zero = move |content: &Content| match content.zero(wanted.offset, wanted.length) {
        Ok(()) => {
            waiting.counters.count_zeroed(wanted.length);
            answer.done();
        }
        Err(error) => fail(&waiting, "zero", wanted.offset, &error, answer),
    };
    match image.content_at_once() {
        Some(content) => zero(content),
        None => {
            let waiting = Arc::clone(image);
            image.pool.submit(Box::new(move |_| {
                // Dropping the answer tells the asker of an I/O error.
                if let Ok(content) = waiting.content() {
                    zero(content);
                }
            }));
        }
    }
}

pub(crate) fn seek(image: &Arc<Image>, wanted: LseekIn, answer: Answer) {
    let target = match wanted.whence as i32 {
        libc::SEEK_DATA => Target::Data,
        libc::SEEK_HOLE => Target::Hole,
        _ => return answer.error(Errno::EINVAL),
    };
    // Looking through the index of a large disk takes a while.
    let waiting = Arc::clone(image);
    image.pool.submit(Box::new(move |_| {
        let content = match waiting.content() {
            Ok(content) => content,
            Err(unreadable) => return answer.error(unreadable.errno()),
        };
        match content.seek(wanted.offset, target) {
            Ok(Some(offset)) => answer.message(&LseekOut { offset }),
            Ok(None) => answer.error(Errno::ENXIO),
            Err(error) => fail(&waiting, "seek", wanted.offset, &error, answer),
        }
    }));
}

fn fail(image: &Image, operation: &str, offset: u64, error: &AccessError, answer: Answer) {
    image.note_failure(operation, offset, error);
    answer.error(error.errno());
}
