//! All blobs of a cache directory, open or not, and in which order they make room.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aenv_layers::{Directory, LocalDirectory};

use super::disk::absent_is_fine;
use super::entry::{read_index, Entry, Shared, DATA, INDEX, NEW_INDEX};
use super::geometry::Geometry;
use crate::digest::Digest;
use crate::error::SourceError;

/// What a file system gives out at least.
const BLOCK: u64 = 4096;

/// The blobs of a cache.
pub(crate) struct Shelf {
    root: PathBuf,
    chunk_bytes: u32,
    pub(crate) shared: Arc<Shared>,
    blobs: Mutex<HashMap<Digest, Blob>>,
}

/// A blob on the shelf.
#[derive(Default)]
struct Blob {
    /// There while the blob is used, and until it was made durable after that.
    entry: Option<Arc<Entry>>,
    users: usize,
    pins: usize,
    stored_bytes: u64,
    last_used: u64,
}

impl Shelf {
    /// Takes stock of the directory, and removes what cannot be used.
    pub(crate) fn open(root: &Path, chunk_bytes: u32, shared: Arc<Shared>) -> io::Result<Self> {
        let shelf = Self { root: root.to_owned(), chunk_bytes, shared, blobs: Mutex::new(HashMap::new()) };
        for item in std::fs::read_dir(root)? {
            let name = item?.file_name();
            if let Some(digest) = name.to_str().and_then(digest_of) {
                if shelf.take_stock(digest).is_err() {
                    shelf.discard(digest)?;
                }
            }
        }
        Ok(shelf)
    }

    fn take_stock(&self, digest: Digest) -> io::Result<()> {
        let directory = LocalDirectory::open(&self.path(digest))?;
        let index = read_index(&directory).ok_or(io::ErrorKind::InvalidData)?;
        if index.geometry.chunk_bytes() != self.chunk_bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut stored_bytes = index.stored_bytes();
        let data = std::fs::metadata(self.path(digest).join(DATA))?;
        let is_as_known = data.len() >= index.geometry.size()
            && data.blocks().saturating_mul(512) <= stored_bytes.next_multiple_of(BLOCK);
        if is_as_known {
            self.shared.budget.count(stored_bytes);
        } else {
            // Opening gives back what the index does not name. It syncs, so it is not done for every blob.
            let entry = Entry::open(Arc::new(directory), digest, index.geometry, Arc::clone(&self.shared))?;
            stored_bytes = entry.stored_bytes();
        }
        let blob = Blob { stored_bytes, last_used: index.last_used, ..Blob::default() };
        self.blobs().insert(digest, blob);
        Ok(())
    }

    /// Opens a blob for reading.
    pub(crate) fn attach(
        self: &Arc<Self>,
        digest: Digest,
        size: u64,
    ) -> Result<(Arc<Entry>, Use), SourceError> {
        let geometry = Geometry::new(size, self.chunk_bytes)
            .ok_or_else(|| SourceError::invalid(format!("a blob of {size} bytes is not cached")))?;
        let mut blobs = self.blobs();
        let blob = blobs.entry(digest).or_default();
        let entry = match &blob.entry {
            Some(entry) if entry.geometry() != geometry => {
                let reason = format!("{digest} is open with another size than {size}");
                return Err(SourceError::invalid(reason));
            }
            Some(entry) => Arc::clone(entry),
            None => {
                let path = self.path(digest);
                let open = || {
                    create_directory(&path)?;
                    let directory = Arc::new(LocalDirectory::open(&path)?);
                    Entry::open(directory, digest, geometry, Arc::clone(&self.shared))
                };
                // It was counted while it lay closed, and counts itself when it opens.
                self.shared.budget.release(std::mem::take(&mut blob.stored_bytes));
                let opened = open().map_err(|error| {
                    // What cannot be opened is not counted any more, so it must not stay either.
                    let _ = self.discard(digest);
                    SourceError::file(&path, error)
                });
                Arc::new(opened?)
            }
        };
        entry.touch();
        blob.entry = Some(Arc::clone(&entry));
        blob.users += 1;
        Ok((entry, Use { shelf: Arc::downgrade(self), digest, is_pin: false }))
    }

    /// Keeps a blob from being evicted as long as there are others.
    pub(crate) fn pin(self: &Arc<Self>, digest: Digest) -> Use {
        self.blobs().entry(digest).or_default().pins += 1;
        Use { shelf: Arc::downgrade(self), digest, is_pin: true }
    }

    /// Makes durable what is open, and closes what nobody uses any more.
    pub(crate) fn checkpoint(&self) {
        let open: Vec<_> = self.blobs().values().filter_map(|blob| blob.entry.clone()).collect();
        for entry in open {
            // A failure costs fetches after a crash, no bytes: it is tried again, or the entry is left aside.
            let _ = entry.checkpoint();
            self.close_unused(&entry);
        }
        self.blobs().retain(|_, blob| blob.is_of_use());
    }

    fn close_unused(&self, entry: &Arc<Entry>) {
        let mut blobs = self.blobs();
        let Some(blob) = blobs.get_mut(&entry.digest) else { return };
        if blob.users == 0 {
            blob.stored_bytes = entry.stored_bytes();
            blob.last_used = entry.last_used();
            blob.entry = None;
        }
    }

    /// Makes room: blobs that nobody uses go whole, the least recently used first; then open ones lose chunks. What is
    /// pinned comes last.
    pub(crate) fn make_room(&self, wanted: u64) {
        let mut candidates: Vec<_> = self
            .blobs()
            .iter()
            .map(|(digest, blob)| ((blob.pins > 0, blob.entry.is_some(), blob.recency()), *digest))
            .collect();
        candidates.sort();
        let mut freed = 0;
        for (_, digest) in candidates {
            if freed >= wanted {
                return;
            }
            freed += self.reduce(digest, wanted - freed);
        }
    }

    fn reduce(&self, digest: Digest, wanted: u64) -> u64 {
        let entry = {
            let mut blobs = self.blobs();
            let Some(blob) = blobs.get_mut(&digest) else { return 0 };
            match &blob.entry {
                Some(entry) => Arc::clone(entry),
                None => {
                    // Under the lock, so that nobody opens what is half removed.
                    let freed = std::mem::take(&mut blob.stored_bytes);
                    if self.discard(digest).is_err() {
                        blob.stored_bytes = freed;
                        return 0;
                    }
                    self.shared.budget.release(freed);
                    self.shared.counters.evicted_bytes.add(freed);
                    self.shared.counters.evicted_chunks.add(freed.div_ceil(u64::from(self.chunk_bytes)));
                    return freed;
                }
            }
        };
        entry.evict(wanted)
    }

    /// Removes the files of a blob, the index durably before the data.
    fn discard(&self, digest: Digest) -> io::Result<()> {
        let path = self.path(digest);
        let Ok(directory) = LocalDirectory::open(&path) else { return Ok(()) };
        absent_is_fine(directory.remove(INDEX))?;
        directory.sync()?;
        absent_is_fine(directory.remove(NEW_INDEX))?;
        absent_is_fine(directory.remove(DATA))?;
        absent_is_fine(std::fs::remove_dir(&path))
    }

    pub(crate) fn count(&self) -> usize {
        self.blobs().len()
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.root.join(digest.to_string().replace(':', "-"))
    }

    fn blobs(&self) -> MutexGuard<'_, HashMap<Digest, Blob>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_use(&self, digest: Digest, is_pin: bool) {
        let mut blobs = self.blobs();
        let Some(blob) = blobs.get_mut(&digest) else { return };
        if is_pin {
            blob.pins -= 1;
            return;
        }
        blob.users -= 1;
        if let Some(entry) = blob.entry.as_ref().filter(|_| blob.users == 0) {
            entry.touch();
        }
    }
}

impl Blob {
    fn recency(&self) -> u64 {
        self.entry.as_ref().map_or(self.last_used, |entry| entry.last_used())
    }

    fn is_of_use(&self) -> bool {
        self.entry.is_some() || self.users > 0 || self.pins > 0 || self.stored_bytes > 0
    }
}

/// Somebody reads or pins a blob, until this is dropped.
pub(crate) struct Use {
    shelf: Weak<Shelf>,
    digest: Digest,
    is_pin: bool,
}

impl Drop for Use {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.upgrade() {
            shelf.end_use(self.digest, self.is_pin);
        }
    }
}

fn digest_of(name: &str) -> Option<Digest> {
    name.replacen('-', ":", 1).parse().ok()
}

fn create_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
