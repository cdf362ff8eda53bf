//! The line from the daemon to its keeper: one byte per word over a socket pair. Both ends use it.

use std::os::fd::OwnedFd;

/// What the daemon says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The daemon listens.
    Ready,
    /// The guest is to be powered off.
    PowerOff,
}

impl Word {
    /// The byte on the line.
    fn to_byte(self) -> u8 {
        match self {
            Self::Ready => b'R',
            Self::PowerOff => b'P',
        }
    }

    /// The word of a byte; unknown ones are ignored.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Ready, Self::PowerOff].into_iter().find(|word| word.to_byte() == byte)
    }
}

/// The daemon's end; without a keeper nobody is at the other.
#[derive(Debug, Default)]
pub(crate) struct Line(Option<OwnedFd>);

impl Line {
    /// The line to a keeper.
    pub(super) fn to_keeper(end: OwnedFd) -> Self {
        Self(Some(end))
    }

    /// Says a word; `false` when nobody listens.
    pub(crate) fn say(&self, word: Word) -> bool {
        self.0.as_ref().is_some_and(|line| nix::unistd::write(line, &[word.to_byte()]).is_ok())
    }
}
