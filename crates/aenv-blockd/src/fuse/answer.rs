//! The answer that a request waits for. It is given exactly once: one that is dropped instead is an I/O error, so that
//! no process waits for a thread that panicked.

use std::sync::Arc;

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::device::Device;

/// The right to answer one request.
pub(crate) struct Answer {
    device: Arc<Device>,
    unique: u64,
    is_sent: bool,
}

impl Answer {
    pub(crate) fn new(device: &Arc<Device>, unique: u64) -> Self {
        Self { device: Arc::clone(device), unique, is_sent: false }
    }

    /// The number of the request.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// The device that the request came from.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Success without more to say.
    pub(crate) fn done(self) {
        self.send(0, &[]);
    }

    /// Success with a message.
    pub(crate) fn message<T: IntoBytes + Immutable>(self, message: &T) {
        self.send(0, &[message.as_bytes()]);
    }

    /// Success with bytes.
    pub(crate) fn bytes(self, bytes: &[u8]) {
        self.send(0, &[bytes]);
    }

    /// Failure.
    pub(crate) fn error(self, errno: Errno) {
        self.send(-(errno as i32), &[]);
    }

    fn send(mut self, error: i32, parts: &[&[u8]]) {
        self.is_sent = true;
        // The only failures are a request that was aborted meanwhile and a mount that is gone: nobody waits then.
        let _ = self.device.send(self.unique, error, parts);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_sent {
            let _ = self.device.send(self.unique, -(Errno::EIO as i32), &[]);
        }
    }
}
