//! The first exchange of a mount. The supervisor has it once; every server afterwards lives by its outcome.

use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use super::abi::{feature, InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR};
use super::device::Device;
use super::request::{Operation, Request};

/// Most bytes of one read or write.
pub(crate) const MAX_TRANSFER: usize = 1 << 20;

/// Bytes that hold any request: the largest write and what stands before it.
pub(crate) const REQUEST_SIZE: usize = MAX_TRANSFER + 4096;

/// Requests that the kernel may have under way in the background, for all images together: one image whose source is
/// stuck must not use them up for the others.
const MAX_BACKGROUND: u16 = 4096;

const WANTED: u64 = feature::ASYNC_READ
    | feature::BIG_WRITES
    | feature::ASYNC_DIO
    | feature::PARALLEL_DIROPS
    | feature::MAX_PAGES
    | feature::INIT_EXT
    | feature::DIRECT_IO_ALLOW_MMAP
    | feature::PASSTHROUGH
    | feature::HAS_RESEND;

/// What kernel and program agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    /// The minor version of the protocol.
    pub(crate) minor: u32,
    /// The features of both.
    pub(crate) features: u64,
}

impl Agreement {
    /// Whether the kernel hands out requests again that a dead server had read.
    pub(crate) fn can_resend(self) -> bool {
        self.features & feature::HAS_RESEND != 0
    }

    /// Whether the kernel can read a plain file by itself.
    pub(crate) fn can_pass_through(self) -> bool {
        self.features & feature::PASSTHROUGH != 0
    }
}

/// Why there is no agreement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NegotiationError {
    /// The kernel is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; 7.{OLDEST_MINOR} is needed (Linux 5.17)")]
    TooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The first message was another one.
    #[error("the kernel did not begin with INIT")]
    Unexpected,
    /// The device failed.
    #[error("cannot exchange the first messages with the kernel")]
    Device(#[from] io::Error),
}

/// Answers the first request of a mount.
pub(crate) fn negotiate(device: &Device) -> Result<Agreement, NegotiationError> {
    let mut buffer = vec![0; REQUEST_SIZE];
    let length = loop {
        match device.receive(&mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            other => break other.map_err(io::Error::from)?,
        }
    };
    let request = Request::parse(&buffer[..length]).map_err(|_| NegotiationError::Unexpected)?;
    let Operation::Init(offer) = request.operation else { return Err(NegotiationError::Unexpected) };
    let unique = request.header.unique;
    if offer.major != MAJOR || offer.minor < OLDEST_MINOR {
        // The mount is given up either way; the kernel only needs some answer.
        let _ = device.send(unique, -(Errno::EPROTO as i32), &[]);
        return Err(NegotiationError::TooOld { major: offer.major, minor: offer.minor });
    }
    let (agreement, answer) = agree(&offer);
    device.send(unique, 0, &[answer.as_bytes()]).map_err(io::Error::from)?;
    Ok(agreement)
}

fn agree(offer: &InitIn) -> (Agreement, InitOut) {
    let offered = u64::from(offer.flags) | u64::from(offer.flags2) << 32;
    let agreement = Agreement { minor: offer.minor.min(MINOR), features: offered & WANTED };
    let answer = InitOut {
        major: MAJOR,
        minor: agreement.minor,
        max_readahead: offer.max_readahead,
        flags: agreement.features as u32,
        flags2: (agreement.features >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: MAX_TRANSFER as u32,
        time_granularity: 1,
        max_pages: (MAX_TRANSFER / 4096) as u16,
        max_stack_depth: u32::from(agreement.can_pass_through()),
        ..InitOut::default()
    };
    (agreement, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_what_both_know_is_agreed_on() {
        let offer = InitIn {
            major: MAJOR,
            minor: 60,
            max_readahead: 131_072,
            flags: u32::MAX,
            flags2: (feature::HAS_RESEND >> 32) as u32,
            ..InitIn::default()
        };
        let (agreement, answer) = agree(&offer);
        assert!(agreement.can_resend() && !agreement.can_pass_through());
        assert_eq!((answer.minor, answer.max_stack_depth), (MINOR, 0));
        let writeback_cache = 1 << 16;
        assert_eq!(
            answer.flags & writeback_cache,
            0,
            "acknowledged writes must not live in the kernel alone"
        );
    }
}
