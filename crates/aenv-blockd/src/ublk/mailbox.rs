//! Answers that are found by other threads than that of the queue, which alone may give them to the kernel.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A tag and its result.
pub(crate) type Answer = (u16, i32);

/// Answers on their way to the thread of a queue.
pub(crate) struct Mailbox {
    answers: Mutex<Vec<Answer>>,
    bell: EventFd,
}

impl Mailbox {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Arc::new(Self { answers: Mutex::default(), bell }))
    }

    /// What becomes readable when there are answers.
    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_fd().as_raw_fd()
    }

    /// Takes all answers that have come.
    pub(crate) fn empty(&self, into: &mut Vec<Answer>) {
        // First the bell: an answer that comes in between rings it again.
        let _ = self.bell.read();
        into.append(&mut self.hold());
    }

    fn post(&self, answer: Answer) {
        self.hold().push(answer);
        // A counter that is full is readable, which is all that matters.
        let _ = self.bell.write(1);
    }

    // No code that can panic runs under this lock.
    fn hold(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to answer a request: one that is dropped without an answer fails.
pub(crate) struct Completion {
    mailbox: Arc<Mailbox>,
    answer: Answer,
}

impl Completion {
    pub(crate) fn new(mailbox: Arc<Mailbox>, tag: u16) -> Self {
        Self { mailbox, answer: (tag, -libc::EIO) }
    }

    pub(crate) fn finish(mut self, result: i32) {
        self.answer.1 = result;
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.mailbox.post(self.answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_request_is_answered_once_even_when_its_thread_panics() {
        let mailbox = Mailbox::new().unwrap();
        Completion::new(Arc::clone(&mailbox), 3).finish(512);
        let lost = Completion::new(Arc::clone(&mailbox), 4);
        std::thread::spawn(move || {
            let _lost = lost;
            panic!("a request that fails on purpose");
        })
        .join()
        .unwrap_err();
        let mut answers = Vec::new();
        mailbox.empty(&mut answers);
        assert_eq!(answers, [(3, 512), (4, -libc::EIO)]);
        mailbox.empty(&mut answers);
        assert_eq!(answers.len(), 2, "nothing comes twice");
    }
}
