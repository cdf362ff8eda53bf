//! A process whose memory is taken: opened by number and start, so that a later process of that number is not it.

use std::fs::{self, File};
use std::io;

use crate::error::MemoryError;
use crate::maps;
use crate::runs::{PageRun, PAGE_SIZE};

/// A range of the addresses of a process, whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    address: u64,
    length: u64,
}

impl Region {
    /// A range; refused when it is not whole pages or wraps around.
    pub fn new(address: u64, length: u64) -> Result<Self, MemoryError> {
        let is_whole = address % PAGE_SIZE == 0 && length % PAGE_SIZE == 0 && length > 0;
        // Addresses of programs fit in 63 bits, so a sum that does cannot surprise anybody later on.
        let fits = address.checked_add(length).is_some_and(|end| i64::try_from(end).is_ok());
        if is_whole && fits {
            Ok(Self { address, length })
        } else {
            Err(MemoryError::Misaligned { address, length })
        }
    }

    /// The first byte.
    pub fn address(self) -> u64 {
        self.address
    }

    /// How many bytes.
    pub fn length(self) -> u64 {
        self.length
    }

    /// The first byte behind the range.
    pub fn end(self) -> u64 {
        self.address + self.length
    }

    pub(crate) fn address_of(self, page: u64) -> u64 {
        self.address + page * PAGE_SIZE
    }
}

/// An open process.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    start_ticks: u64,
    pagemap: File,
}

impl Process {
    /// Opens the process `pid` that started `start_ticks` clock ticks after the host.
    pub fn open(pid: i32, start_ticks: u64) -> Result<Self, MemoryError> {
        let pagemap =
            File::open(format!("/proc/{pid}/pagemap")).map_err(|error| inspect(pid, "the pages", error))?;
        let process = Self { pid, start_ticks, pagemap };
        process.check_identity()?;
        Ok(process)
    }

    /// The number of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn pagemap(&self) -> &File {
        &self.pagemap
    }

    /// Fails when the process has ended or its number has changed hands.
    pub fn check_identity(&self) -> Result<(), MemoryError> {
        let gone = MemoryError::ProcessGone { pid: self.pid };
        let text = match fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => return Err(inspect(self.pid, "the state", error)),
        };
        match parse_stat(&text) {
            Some((state, start)) if start == self.start_ticks && !matches!(state, 'Z' | 'X') => Ok(()),
            _ => Err(gone),
        }
    }

    /// Fails unless the region is memory that belongs to the process alone.
    pub fn check_region(&self, region: Region) -> Result<(), MemoryError> {
        let text = maps::read(self.pid)?;
        match maps::find_foreign(&text, region) {
            None => Ok(()),
            Some(address) => Err(MemoryError::NotPrivateMemory { pid: self.pid, address }),
        }
    }

    /// Fills the buffer with the pages of these runs, one after the other.
    pub(crate) fn gather(
        &self,
        region: Region,
        runs: &[PageRun],
        buffer: &mut [u8],
    ) -> Result<(), MemoryError> {
        let remote: Vec<libc::iovec> = runs
            .iter()
            .map(|run| libc::iovec {
                iov_base: region.address_of(run.first) as *mut libc::c_void,
                iov_len: (run.count * PAGE_SIZE) as usize,
            })
            .collect();
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: `local` is exactly the buffer, which is borrowed for writing; the kernel checks the remote addresses
        // against the other process and never touches ours by them.
        let count = unsafe {
            libc::process_vm_readv(self.pid, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        if count == buffer.len() as isize {
            return Ok(());
        }
        let error =
            if count < 0 { io::Error::last_os_error() } else { io::Error::from_raw_os_error(libc::EFAULT) };
        if error.raw_os_error() == Some(libc::ESRCH) {
            return Err(MemoryError::ProcessGone { pid: self.pid });
        }
        // A process that is being killed answers with a fault, because its memory is gone before its number is.
        self.check_identity()?;
        let first_page = page_at(runs, count.max(0) as u64 / PAGE_SIZE);
        Err(MemoryError::Read { pid: self.pid, address: region.address_of(first_page), source: error })
    }
}

fn page_at(runs: &[PageRun], mut position: u64) -> u64 {
    for run in runs {
        if position < run.count {
            return run.first + position;
        }
        position -= run.count;
    }
    runs.last().map_or(0, |run| run.end())
}

pub(crate) fn inspect(pid: i32, what: &'static str, source: io::Error) -> MemoryError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => MemoryError::ProcessGone { pid },
        _ => MemoryError::Inspect { pid, what, source },
    }
}

/// The state of a process and when it began. The name in between may hold anything, also brackets.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_of_processes_do_not_shift_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(&format!("7 (a) Z 1 (b)) {rest}")), Some(('S', 4711)));
        for text in
            ["", "7 (a", "7 (a)", "7 (a) S 1 2", "7 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"]
        {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    #[test]
    fn test_regions_are_whole_pages_that_do_not_wrap() {
        assert!(Region::new(0x1000, 0x2000).is_ok());
        for (address, length) in [(1, 4096), (4096, 1), (4096, 0), (u64::MAX - 4095, 4096), (1 << 63, 4096)] {
            assert!(matches!(Region::new(address, length), Err(MemoryError::Misaligned { .. })));
        }
    }

    #[test]
    fn test_the_page_that_failed_is_named() {
        let runs = [PageRun { first: 10, count: 2 }, PageRun { first: 20, count: 3 }];
        assert_eq!([0, 1, 2, 4, 5].map(|position| page_at(&runs, position)), [10, 11, 20, 22, 23]);
    }
}
