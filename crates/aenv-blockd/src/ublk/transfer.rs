//! Serving a request of a disk: between the layers and the character device. What may wait for a network or a disk goes
//! to the image's own threads; the rest is done on the spot.

use std::sync::Arc;

use nix::errno::Errno;

use super::character::Character;
use super::mailbox::{Completion, Mailbox};
use super::request::Request;
use crate::image::{AccessError, Content, Image, READ_MARGIN};
use crate::log;

/// A request, and all that is needed to serve it wherever there is a thread.
pub(crate) struct Work {
    pub(crate) image: Arc<Image>,
    pub(crate) character: Arc<Character>,
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    pub(crate) request: Request,
}

impl Work {
    /// Serves the request and returns its result, unless that may take long.
    pub(crate) fn at_once(&self, buffer: &mut Vec<u8>) -> Option<i32> {
        match self.request {
            Request::Flush => None,
            _ => self.image.content_at_once().map(|content| self.result(content, buffer)),
        }
    }

    /// Leaves the request to the threads of the image.
    pub(crate) fn leave(self, mailbox: &Arc<Mailbox>) {
        let completion = Completion::new(Arc::clone(mailbox), self.tag);
        let image = Arc::clone(&self.image);
        image.pool.submit(Box::new(move |buffer| {
            let result = match self.image.content() {
                Ok(content) => self.result(content, buffer),
                Err(unreadable) => -(unreadable.errno() as i32),
            };
            completion.finish(result);
        }));
    }

    fn result(&self, content: &Content, buffer: &mut Vec<u8>) -> i32 {
        self.perform(content, buffer).unwrap_or_else(|errno| -(errno as i32))
    }

    fn perform(&self, content: &Content, buffer: &mut Vec<u8>) -> Result<i32, Errno> {
        let counters = &self.image.counters;
        match self.request {
            Request::Read { offset, length } => {
                grow(buffer, length);
                let bytes = content
                    .read(offset, length, buffer)
                    .map_err(|error| self.fail("read", offset, &error))?;
                self.character.put(self.queue, self.tag, bytes).map_err(|error| self.lose(&error))?;
                counters.count_read(bytes.len());
                self.image.recorder.note(offset, bytes.len() as u64);
                Ok(bytes.len() as i32)
            }
            Request::Write { offset, length } => {
                grow(buffer, length);
                let bytes = &mut buffer[..length];
                self.character.take(self.queue, self.tag, bytes).map_err(|error| self.lose(&error))?;
                content.write(offset, bytes).map_err(|error| self.fail("write", offset, &error))?;
                counters.count_write(length);
                Ok(length as i32)
            }
            Request::Flush => {
                content.flush().map_err(|error| self.fail("flush", 0, &error))?;
                counters.count_flush();
                Ok(0)
            }
            Request::Zero { offset, length } => {
                content.zero(offset, length).map_err(|error| self.fail("zero", offset, &error))?;
                counters.count_zeroed(length);
                Ok(0)
            }
        }
    }

    fn fail(&self, operation: &str, offset: u64, error: &AccessError) -> Errno {
        self.image.note_failure(operation, offset, error);
        error.errno()
    }

    /// The request went away while it was served: its device was stopped.
    fn lose(&self, error: &std::io::Error) -> Errno {
        if self.image.counters.count_error() {
            let (image, reason) = (self.image.name().as_str(), error.to_string());
            log::warning("request_lost", &[("image", &image), ("reason", &reason)]);
        }
        Errno::EIO
    }
}

fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length + READ_MARGIN {
        buffer.resize(length + READ_MARGIN, 0);
    }
}
