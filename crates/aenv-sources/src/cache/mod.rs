//! The block cache: chunks of remote blobs in a directory of bounded size. It may forget anything at any time, and is
//! never the reason for a failed read: what cannot be stored is fetched and passed on.

mod blob;
mod budget;
mod claim;
mod disk;
mod entry;
mod evict;
mod fill;
mod flight;
mod geometry;
mod index;
mod keeper;
mod shelf;
mod slots;
mod statistics;
#[cfg(test)]
mod tests;
mod whole;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{fallocate, flock, FallocateFlags, FlockOperation};

pub(crate) use blob::CachedBlob;
pub(crate) use entry::Entry;
#[cfg(feature = "fuzzing")]
pub(crate) use index::Index;
pub use statistics::Statistics;
pub(crate) use whole::{Completeness, Pull};

use crate::digest::Digest;
use crate::error::SourceError;
use crate::remote::Remote;
use budget::Budget;
use entry::Shared;
use geometry::Geometry;
use keeper::{Bell, Duties, Keeper};
use shelf::Shelf;
pub(crate) use shelf::Use;

/// Where the cache is and how much it holds.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The directory. It is made when its parent exists, and belongs to one process at a time.
    pub directory: PathBuf,
    /// The most that blobs may take. Beyond 90 % of it the least used is evicted, down to 80 %.
    pub capacity_bytes: u64,
    /// What is fetched and evicted at once: a power of two from 4 KiB to 16 MiB.
    pub chunk_bytes: u32,
    /// The most that is fetched with one request, when reads follow each other.
    pub fetch_bytes: u64,
    /// How often new chunks are made durable. After a kill of the process, younger ones are fetched again.
    pub checkpoint_interval: Duration,
    /// Room on the file system that the cache leaves to others.
    pub free_floor_bytes: u64,
}

impl CacheOptions {
    /// A cache of so many bytes in this directory.
    pub fn new(directory: PathBuf, capacity_bytes: u64) -> Self {
        Self {
            directory,
            capacity_bytes,
            chunk_bytes: 256 << 10,
            fetch_bytes: 2 << 20,
            checkpoint_interval: Duration::from_secs(30),
            free_floor_bytes: 1 << 30,
        }
    }
}

/// A cache. Dropped, it makes everything durable; blobs that are still read go on without eviction.
pub(crate) struct BlockCache {
    keeper: Keeper,
    shelf: Arc<Shelf>,
}

impl BlockCache {
    pub(crate) fn open(options: &CacheOptions) -> Result<Self, SourceError> {
        if Geometry::new(1, options.chunk_bytes).is_none() {
            return Err(SourceError::invalid("chunk_bytes is not a power of two from 4 KiB to 16 MiB"));
        }
        let root = &options.directory;
        let failed = |error| SourceError::file(root, error);
        create_private(root).map_err(failed)?;
        let lock = lock(root)?;
        probe_punching(root).map_err(failed)?;
        let bell = Arc::new(Bell::default());
        let ring = Arc::clone(&bell);
        let shared = Arc::new(Shared {
            budget: Budget::new(options.capacity_bytes),
            counters: Default::default(),
            gate: Default::default(),
            fetch_bytes: options.fetch_bytes,
            alarm: Box::new(move || ring.ring()),
            _lock: Some(lock),
        });
        let shelf = Arc::new(Shelf::open(root, options.chunk_bytes, shared).map_err(failed)?);
        let duties = Duties {
            shelf: Arc::clone(&shelf),
            root: root.clone(),
            checkpoint_interval: options.checkpoint_interval,
            free_floor_bytes: options.free_floor_bytes,
            turn: Default::default(),
        };
        // A directory that was larger yesterday is within its limit before the first read.
        duties.tidy();
        let keeper = Keeper::start(bell, duties).map_err(SourceError::thread)?;
        Ok(Self { keeper, shelf })
    }

    /// Reads a blob through the cache.
    pub(crate) fn attach(
        &self,
        digest: Digest,
        size: u64,
        remote: Arc<dyn Remote>,
    ) -> Result<CachedBlob, SourceError> {
        let (entry, in_use) = self.shelf.attach(digest, size)?;
        Ok(CachedBlob::new(entry, remote, Some(in_use)))
    }

    pub(crate) fn pin(&self, digest: Digest) -> Use {
        self.shelf.pin(digest)
    }

    /// Makes durable what is in the cache now.
    pub(crate) fn checkpoint(&self) {
        self.shelf.checkpoint();
    }

    /// Evicts now what the keeper would evict soon.
    pub(crate) fn tidy(&self) {
        self.keeper.duties().tidy();
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let shared = &self.shelf.shared;
        Statistics {
            used_bytes: shared.budget.used(),
            capacity_bytes: shared.budget.capacity(),
            blobs: self.shelf.count() as u64,
            ..shared.counters.read()
        }
    }
}

/// What guests read is nobody else's business.
fn create_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn lock(root: &Path) -> Result<File, SourceError> {
    let path = root.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| SourceError::file(&path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SourceError::CacheInUse { path: root.to_owned() }),
        Err(error) => Err(SourceError::file(&path, error.into())),
    }
}

/// On a file system without holes eviction would free nothing. It is better to hear that at the start.
fn probe_punching(root: &Path) -> io::Result<()> {
    let path = root.join("probe");
    let file = File::options().create(true).truncate(true).write(true).open(&path)?;
    let outcome = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096);
    std::fs::remove_file(&path)?;
    Ok(outcome?)
}
