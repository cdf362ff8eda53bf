//! The line from the daemon to the first process: one byte per word over a socket pair. Both ends use it.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

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
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Ready, Self::PowerOff].into_iter().find(|word| word.to_byte() == byte)
    }
}

/// The daemon's end; without a first process of ours nobody is at the other.
#[derive(Debug)]
pub(crate) struct SupervisorLine(Option<OwnedFd>);

impl SupervisorLine {
    /// Takes over the descriptor that the first process passed on the command line.
    pub(crate) fn open(descriptor: Option<i32>) -> Self {
        // SAFETY: the first process opened the descriptor for us alone, and this is the only place that takes it.
        let line = descriptor.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        if let Some(line) = &line {
            // Processes must not be able to power the guest off.
            let _ = nix::fcntl::fcntl(line, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
        }
        Self(line)
    }

    /// Says a word; `false` when nobody listens.
    pub(crate) fn say(&self, word: Word) -> bool {
        let send = |line: BorrowedFd<'_>| nix::unistd::write(line, &[word.to_byte()]).is_ok();
        self.0.as_ref().is_some_and(|line| send(line.as_fd()))
    }
}
