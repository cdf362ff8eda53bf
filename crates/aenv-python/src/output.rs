//! A new file: whole and durable under its name, or not there at all. It never replaces one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aenv_layers::{File, ReadAt};
use rustix::fs::{linkat, openat, renameat_with, unlinkat, AtFlags, Mode, OFlags, RenameFlags, CWD};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::digest::{hash, text_of};
use crate::failure::{shown, Failure};
use crate::input::Input;
use crate::watch::Watcher;

/// Bytes that are gathered before they are written.
const WRITE_SIZE: usize = 1 << 20;

/// A file that is being made.
pub(crate) struct Output {
    path: PathBuf,
    name: OsString,
    directory: OwnedFd,
    /// The name that it has meanwhile, where the file system cannot do without one.
    temporary: Option<String>,
    file: Arc<GatheringFile>,
}

impl Output {
    /// Begins a file. Until `publish` it has no name, so that whatever kills us removes it.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let Some(name) = path.file_name() else {
            return Err(Failure::Invalid(format!("{} names no file", shown(path))));
        };
        // Found again at the end, but an hour of work should not be lost to it.
        if fs::symlink_metadata(path).is_ok() {
            return Err(Failure::on("create", path)(Errno::EXIST));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent, flags, Mode::empty()).map_err(Failure::on("open", parent))?;
        let (file, temporary) = begin(&directory).map_err(Failure::on("create", path))?;
        let file = Arc::new(GatheringFile::new(fs::File::from(file)));
        Ok(Self { path: path.to_owned(), name: name.to_owned(), directory, temporary, file })
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file) as Arc<dyn File>
    }

    /// What errors call the file.
    pub(crate) fn name(&self) -> String {
        shown(&self.path)
    }

    /// Makes the file so long; what is not written reads as zeros.
    pub(crate) fn set_length(&self, length: u64) -> Result<(), Failure> {
        self.file.set_length(length).map_err(Failure::on("write", &self.path))
    }

    /// Writes all bytes at an offset.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            done += self.file.write_at(at, &bytes[done..]).map_err(Failure::on("write", &self.path))?;
        }
        Ok(())
    }

    /// Forgets everything that was written.
    pub(crate) fn restart(&self) -> Result<(), Failure> {
        self.file.restart().map_err(Failure::on("write", &self.path))
    }

    /// The length of what was written, and its digest. The file is read again unless it was written straight through.
    pub(crate) fn summarise(&self, watcher: &mut Watcher) -> Result<(u64, String), Failure> {
        let failed = |error: io::Error| Failure::on("write", &self.path)(error);
        let length = self.file.length().map_err(failed)?;
        if let Some(digest) = self.file.digest().map_err(failed)? {
            return Ok((length, digest));
        }
        let file = self.file.file.try_clone().map_err(failed)?;
        watcher.expect(length)?;
        Ok((length, hash(&Input { path: self.path.clone(), file, length }, watcher)?))
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn publish(mut self) -> Result<(), Failure> {
        self.file.sync().map_err(Failure::on("write", &self.path))?;
        match self.temporary.take() {
            None => {
                let own = format!("/proc/self/fd/{}", self.file.file.as_raw_fd());
                linkat(CWD, own, &self.directory, &self.name, AtFlags::SYMLINK_FOLLOW)
            }
            Some(temporary) => {
                let outcome = give_name(&self.directory, &temporary, &self.name);
                self.temporary = outcome.is_err().then_some(temporary);
                outcome
            }
        }
        .map_err(Failure::on("create", &self.path))?;
        rustix::fs::fsync(&self.directory).map_err(Failure::on("write out the directory of", &self.path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What resists stays under a name that tells what it is.
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

fn begin(directory: &OwnedFd) -> Result<(OwnedFd, Option<String>), Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let temporary = format!(".aenv-{}-{count}.partial", std::process::id());
            let file = openat(directory, &temporary, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            Ok((file, Some(temporary)))
        }
        outcome => outcome.map(|file| (file, None)),
    }
}

/// Renames without replacing, also on file systems that know only one of the two ways to do so.
fn give_name(directory: &OwnedFd, from: &str, to: &OsString) -> Result<(), Errno> {
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => {
            linkat(directory, from, directory, to, AtFlags::empty())?;
            unlinkat(directory, from, AtFlags::empty())
        }
        outcome => outcome,
    }
}

/// A local file that writes large pieces, and hashes what is written as long as it comes in order.
struct GatheringFile {
    file: fs::File,
    state: Mutex<Gathered>,
}

struct Gathered {
    /// Bytes that are not written yet.
    pending: Vec<u8>,
    /// Where they go.
    start: u64,
    /// None once something was written out of order.
    hasher: Option<Sha256>,
}

impl Gathered {
    fn new() -> Self {
        Self { pending: Vec::with_capacity(WRITE_SIZE), start: 0, hasher: Some(Sha256::new()) }
    }

    fn end(&self) -> u64 {
        self.start + self.pending.len() as u64
    }

    fn write_out(&mut self, file: &fs::File) -> io::Result<()> {
        file.write_all_at(&self.pending, self.start)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&self.pending);
        }
        self.start = self.end();
        self.pending.clear();
        Ok(())
    }
}

impl GatheringFile {
    fn new(file: fs::File) -> Self {
        Self { file, state: Mutex::new(Gathered::new()) }
    }

    fn state(&self) -> MutexGuard<'_, Gathered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written_out(&self) -> io::Result<MutexGuard<'_, Gathered>> {
        let mut state = self.state();
        state.write_out(&self.file)?;
        Ok(state)
    }

    fn restart(&self) -> io::Result<()> {
        let mut state = self.state();
        *state = Gathered::new();
        self.file.set_len(0)
    }

    fn digest(&self) -> io::Result<Option<String>> {
        let hasher = self.written_out()?.hasher.clone();
        Ok(hasher.map(text_of))
    }
}

impl ReadAt for GatheringFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        drop(self.written_out()?);
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        drop(self.written_out()?);
        self.file.metadata().map(|metadata| metadata.len())
    }
}

impl File for GatheringFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if offset != state.end() {
            state.write_out(&self.file)?;
            state.start = offset;
            state.hasher = None;
        }
        let count = bytes.len().min(WRITE_SIZE - state.pending.len());
        state.pending.extend_from_slice(&bytes[..count]);
        if state.pending.len() == WRITE_SIZE {
            state.write_out(&self.file)?;
        }
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        drop(self.written_out()?);
        self.file.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.written_out()?.hasher = None;
        self.file.set_len(length)
    }

    fn punch(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
