//! Files of the local file system. Paths come from the caller; names are single components.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fallocate, FallocateFlags};

use super::{Directory, File, ReadAt};

/// A file of the local file system.
#[derive(Debug)]
pub struct LocalFile(fs::File);

impl LocalFile {
    /// Opens a file for reading.
    pub fn open_readonly(path: &Path) -> io::Result<Self> {
        fs::File::open(path).map(Self)
    }

    /// Creates a file that must not exist.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::File::options().read(true).write(true).create_new(true).open(path).map(Self)
    }

    /// Opens a file for reading and writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::File::options().read(true).write(true).open(path).map(Self)
    }
}

impl From<fs::File> for LocalFile {
    fn from(file: fs::File) -> Self {
        Self(file)
    }
}

impl ReadAt for LocalFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.metadata().map(|metadata| metadata.len())
    }
}

impl File for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)?;
        Ok(())
    }
}

/// A directory of the local file system.
#[derive(Debug)]
pub struct LocalDirectory {
    path: PathBuf,
    handle: fs::File,
}

impl LocalDirectory {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = fs::File::open(path)?;
        if !handle.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: path.to_owned(), handle })
    }

    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.path.join(name))
    }
}

impl Directory for LocalDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LocalFile::create(&self.path_of(name)?)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LocalFile::open(&self.path_of(name)?)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_of(from)?, self.path_of(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}
