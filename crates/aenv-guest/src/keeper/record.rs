//! What the next daemon must know of a process: a small memory file per process, kept open in the descriptor table
//! that daemon and keeper share. The keeper reads and writes heads only; bodies are the daemon's business.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::sys::memfd::{memfd_create, MFdFlags};

use super::Fate;

/// The name by which records are found among all descriptors.
pub(super) const NAME: &CStr = c"aenv-process";
/// Also the version: a keeper and its daemons are one program, but a mixed-up descriptor must not pass for a record.
const MAGIC: i64 = 0x4145_5031;
const WORDS: usize = 11;
const WORD_BYTES: usize = 8;
const HEAD_BYTES: usize = WORDS * WORD_BYTES;
/// Where in the head things are, counted in words.
const PID: usize = 1;
const STREAMS: usize = 2;
const FATE: usize = 7;
const BODY_BYTES: usize = 9;
const WRITTEN: usize = 10;
/// A command line can be no longer than a request.
const BODY_BYTES_MAX: usize = 4 << 20;
const ABSENT: i64 = -1;

/// The descriptors of a process, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streams {
    /// Names the process beyond its end.
    pub(crate) pidfd: RawFd,
    /// Writing end of standard input, unless it is closed.
    pub(crate) input: Option<RawFd>,
    /// Reading end of standard output.
    pub(crate) stdout: Option<RawFd>,
    /// Reading end of standard error.
    pub(crate) stderr: Option<RawFd>,
    /// Master of the terminal.
    pub(crate) terminal: Option<RawFd>,
}

impl Streams {
    fn to_words(self) -> [i64; 5] {
        let word = |number: Option<RawFd>| number.map_or(ABSENT, i64::from);
        [i64::from(self.pidfd), word(self.input), word(self.stdout), word(self.stderr), word(self.terminal)]
    }

    fn from_words(words: &[i64]) -> Option<Self> {
        let [pidfd, input, stdout, stderr, terminal] = *words.first_chunk()?;
        let number = |word: i64| RawFd::try_from(word).ok().filter(|number| *number >= 0);
        Some(Self {
            pidfd: number(pidfd)?,
            input: number(input),
            stdout: number(stdout),
            stderr: number(stderr),
            terminal: number(terminal),
        })
    }

    /// All that are there.
    pub(super) fn numbers(self) -> impl Iterator<Item = RawFd> {
        [Some(self.pidfd), self.input, self.stdout, self.stderr, self.terminal].into_iter().flatten()
    }
}

/// The part of a record that the keeper understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The process.
    pub(crate) pid: u32,
    /// Our ends of its streams.
    pub(crate) streams: Streams,
    /// How it ended, once somebody knows.
    pub(crate) fate: Option<Fate>,
    /// When the record was written, as [`now`] has it.
    pub(super) written: u64,
    body_bytes: usize,
}

/// Nanoseconds on the clock that only runs forward.
pub(crate) fn now() -> u64 {
    let time =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One process's record.
#[derive(Debug)]
pub(crate) struct Record(File);

impl Record {
    /// Writes a record down. It counts from the moment its single write is complete.
    pub(super) fn create(pid: u32, streams: Streams, body: &[u8]) -> io::Result<Self> {
        let refused = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        if body.len() > BODY_BYTES_MAX {
            return Err(refused("description of the process is too long"));
        }
        let word = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut words = [0; WORDS];
        words[0] = MAGIC;
        words[PID] = i64::from(pid);
        words[STREAMS..FATE].copy_from_slice(&streams.to_words());
        words[BODY_BYTES] = word(body.len() as u64);
        words[WRITTEN] = word(now());
        let content = [&words.map(i64::to_ne_bytes).concat(), body].concat();
        let file = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC)?);
        file.write_all_at(&content, 0)?;
        Ok(Self(file))
    }

    /// Takes over the descriptor of a record that another daemon wrote.
    pub(super) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    /// The head; `None` when this is not a whole record.
    pub(crate) fn head(&self) -> Option<Head> {
        let mut bytes = [0; HEAD_BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD_BYTES)) {
            *word = i64::from_ne_bytes(bytes.try_into().ok()?);
        }
        let body_bytes = usize::try_from(words[BODY_BYTES]).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?;
        // A daemon that was killed while it wrote leaves a record that is too short.
        let is_whole = self.0.metadata().ok()?.len() == (HEAD_BYTES + body_bytes) as u64;
        (words[0] == MAGIC && is_whole).then_some(())?;
        Some(Head {
            pid: u32::try_from(words[PID]).ok()?,
            streams: Streams::from_words(&words[STREAMS..FATE])?,
            fate: read_fate(words[FATE], words[FATE + 1]),
            written: u64::try_from(words[WRITTEN]).ok()?,
            body_bytes,
        })
    }

    /// What the daemon wrote about the process.
    pub(crate) fn body(&self) -> io::Result<Vec<u8>> {
        let size = self.head().map_or(0, |head| head.body_bytes);
        let mut body = vec![0; size];
        self.0.read_exact_at(&mut body, HEAD_BYTES as u64)?;
        Ok(body)
    }

    /// Notes how the process ended.
    pub(crate) fn set_fate(&self, fate: Fate) {
        let (kind, number) = match fate {
            Fate::Exited(code) => (1, code),
            Fate::Killed(signal, false) => (2, signal),
            Fate::Killed(signal, true) => (3, signal),
        };
        self.overwrite(FATE, &[kind, i64::from(number)]);
    }

    /// Notes that the input is about to be closed: its number may soon be somebody else's.
    pub(crate) fn forget_input(&self) {
        self.overwrite(STREAMS + 1, &[ABSENT]);
    }

    /// A second handle, which stays when this one goes.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The number of the record itself.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    fn overwrite(&self, position: usize, words: &[i64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Within the page that creation has already allocated, so there is nothing that could fail.
        let _ = self.0.write_all_at(&bytes, (position * WORD_BYTES) as u64);
    }
}

fn read_fate(kind: i64, number: i64) -> Option<Fate> {
    let number = i32::try_from(number).ok()?;
    match kind {
        1 => Some(Fate::Exited(number)),
        2 => Some(Fate::Killed(number, false)),
        3 => Some(Fate::Killed(number, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS_OF_PIPES: Streams =
        Streams { pidfd: 7, input: Some(8), stdout: Some(9), stderr: Some(10), terminal: None };

    #[test]
    fn a_record_tells_what_was_written_and_changed() {
        let before = now();
        let record = Record::create(42, STREAMS_OF_PIPES, b"{}").expect("memory");
        assert!((before..=now()).contains(&record.head().expect("a whole record").written));
        let head = record.head().expect("a whole record");
        assert_eq!((head.pid, head.streams, head.fate), (42, STREAMS_OF_PIPES, None));
        assert_eq!(record.body().expect("a body"), b"{}");
        record.forget_input();
        for fate in [Fate::Exited(3), Fate::Killed(9, false), Fate::Killed(6, true)] {
            record.set_fate(fate);
            assert_eq!(record.head().expect("still whole").fate, Some(fate));
        }
        let streams = record.head().expect("still whole").streams;
        assert_eq!(streams, Streams { input: None, ..STREAMS_OF_PIPES });
        assert_eq!(streams.numbers().collect::<Vec<_>>(), [7, 9, 10]);
    }

    #[test]
    fn what_is_not_whole_is_no_record() {
        let empty = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC).expect("memory"));
        assert_eq!(Record(empty.try_clone().expect("a handle")).head(), None);
        empty.write_all_at(&[1; HEAD_BYTES], 0).expect("memory");
        assert_eq!(Record(empty).head(), None);
        let cut = Record::create(42, STREAMS_OF_PIPES, b"{}").expect("memory");
        cut.0.set_len(HEAD_BYTES as u64 + 1).expect("cut");
        assert_eq!(cut.head(), None);
    }
}
