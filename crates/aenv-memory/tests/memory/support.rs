//! Memory that a test owns, processes that stand still, and layers read back.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aenv_layers::{LayerId, Limits, LocalFile, SealedLayer, Stack, View};
use aenv_memory::{write_layer, Base, LayerFile, MemoryError, NewLayerFile, Pages, Process, Region, Source};

pub(crate) const PAGE: usize = 4096;

/// Private memory of this process, over a file or over nothing.
pub(crate) struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    pub(crate) fn anonymous(pages: usize) -> Self {
        Self::map(pages, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    pub(crate) fn over(file: &fs::File, pages: usize) -> Self {
        use std::os::fd::AsRawFd;
        Self::map(pages, libc::MAP_PRIVATE, file.as_raw_fd())
    }

    fn map(pages: usize, flags: i32, file: i32) -> Self {
        let length = pages * PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range is the mapping made above. Huge pages would make neighbours of a change change as well.
        unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        Self { start: start.cast(), length }
    }

    pub(crate) fn fill(&self, page: usize, byte: u8) {
        assert!((page + 1) * PAGE <= self.length);
        // SAFETY: the page lies within the mapping, which nobody else uses.
        unsafe { self.start.add(page * PAGE).write_bytes(byte, PAGE) };
    }

    pub(crate) fn read(&self, page: usize) -> u8 {
        // SAFETY: as above.
        unsafe { self.start.add(page * PAGE).read_volatile() }
    }

    pub(crate) fn region(&self) -> Region {
        Region::new(self.start as u64, self.length as u64).unwrap()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and ends with its owner.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

pub(crate) fn open(pid: i32) -> Process {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    Process::open(pid, start).unwrap()
}

pub(crate) fn this_process() -> Process {
    open(std::process::id() as i32)
}

pub(crate) fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub(crate) fn write(
    process: &Process,
    mapping: &Mapping,
    pages: &Pages,
    base: Base<'_>,
    path: &Path,
) -> Result<LayerFile, MemoryError> {
    let source = Source { process, region: mapping.region() };
    let new = NewLayerFile { path, id: LayerId([7; 16]), parent: LayerId::NONE, is_hashed: true };
    write_layer(source, pages, base, new, &mut go_on)
}

pub(crate) fn stack(paths: &[PathBuf]) -> Stack {
    let open = |path: &PathBuf| {
        let file = Arc::new(LocalFile::open_readonly(path).unwrap());
        Arc::new(SealedLayer::open("memory", file, &Limits::default()).unwrap())
    };
    Stack::new("memory", paths.iter().map(open).collect()).unwrap()
}

/// The first byte of every page of the stack, all of whose bytes are the same.
pub(crate) fn page_bytes(stack: &Stack) -> Vec<u8> {
    let mut bytes = vec![0; stack.size() as usize];
    stack.read(0, &mut bytes).unwrap();
    bytes
        .chunks(PAGE)
        .map(|page| {
            assert!(page.iter().all(|&byte| byte == page[0]));
            page[0]
        })
        .collect()
}

pub(crate) fn contents(mapping: &Mapping) -> Vec<u8> {
    (0..mapping.length / PAGE).map(|page| mapping.read(page)).collect()
}

/// A copy of this process that stands still until it is killed.
pub(crate) struct Frozen(pub(crate) i32);

impl Frozen {
    pub(crate) fn start() -> Self {
        // SAFETY: the copy has one thread, and does nothing but wait for a signal that ends it.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: without arguments and safe after a fork.
                unsafe { libc::pause() };
            },
            pid => {
                assert!(pid > 0);
                Self(pid)
            }
        }
    }

    pub(crate) fn kill(&self) {
        // SAFETY: the number is that of our child, which has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitid(libc::P_PID, self.0 as u32, std::mem::zeroed(), libc::WEXITED | libc::WNOWAIT);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as above; this collects it.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}
