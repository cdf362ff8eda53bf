//! A fixed buffer that slides over a stream. Collects as much as fits before it is written, so that small files reach the
//! disk in one call.

use std::io::{self, Read};

/// Large enough for few system calls, small enough to have one per upload.
const WINDOW_BYTES: usize = 128 << 10;

/// The part of a stream that is in memory.
pub(super) struct Window<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<R: Read> Window<R> {
    /// A window at the start of a stream, which pretends that the stream begins with `prelude`.
    pub(super) fn new(source: R, prelude: &[u8]) -> Self {
        Self::with_capacity(source, prelude, WINDOW_BYTES)
    }

    pub(super) fn with_capacity(source: R, prelude: &[u8], capacity: usize) -> Self {
        assert!(prelude.len() < capacity, "the window must have room for its prelude");
        let mut buffer = vec![0; capacity].into_boxed_slice();
        buffer[..prelude.len()].copy_from_slice(prelude);
        Self { source, buffer, start: 0, end: prelude.len() }
    }

    /// What is in memory and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Whether it holds as much as it can.
    pub(super) fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len()
    }

    /// Steps over bytes at the front.
    pub(super) fn consume(&mut self, length: usize) {
        self.start = self.end.min(self.start + length);
    }

    /// Reads more; `false` at the end of the stream. The window must not be full.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        debug_assert!(!self.is_full(), "a full window cannot take more");
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(length) => {
                    self.end += length;
                    return Ok(length > 0);
                }
            }
        }
    }

    /// Fills until full; `false` when the stream ended before.
    pub(super) fn fill_up(&mut self) -> io::Result<bool> {
        while !self.is_full() {
            if !self.fill()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
