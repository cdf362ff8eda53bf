//! The device table on disk: an append-only file of changes, each frame of them checked and synced. A frame that was
//! cut short by a crash is the end of the file; any other damage is refused, because images would be missing.

mod frame;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::image::{Description, ImageName};
use crate::refusal::Refusal;
pub(crate) use frame::TableError;
use frame::{encode, Frames, MAGIC};

/// A file below this size is never rewritten.
const MIN_REWRITE: u64 = 1 << 20;

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// An image is new or has become another.
    Put(Box<Description>),
    /// An image is gone.
    Drop(ImageName),
}

/// One frame of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    next_serial: u64,
    changes: Vec<Change>,
}

/// The open table file.
pub(crate) struct Journal {
    queue: Mutex<Arc<Batch>>,
    writer: Mutex<Writer>,
}

/// Changes that are written together.
#[derive(Default)]
struct Batch {
    changes: Mutex<Vec<Change>>,
    outcome: OnceLock<Result<(), String>>,
}

struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
    next_serial: u64,
    images: BTreeMap<ImageName, Description>,
    rewrite_at: u64,
    has_failed: bool,
}

impl Journal {
    /// Opens or creates the table and reads all of it.
    pub(crate) fn open(path: &Path) -> Result<Self, TableError> {
        let failed = |source| TableError::Io { path: path.to_owned(), source };
        // What a rewriting left behind that did not come to its end.
        match fs::remove_file(replacement(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            length: 0,
            next_serial: FIRST_SERIAL,
            images: BTreeMap::new(),
            rewrite_at: MIN_REWRITE,
            has_failed: false,
        };
        writer.read()?;
        Ok(Self { queue: Mutex::default(), writer: Mutex::new(writer) })
    }

    /// What the table says, by name.
    pub(crate) fn images(&self) -> Vec<Description> {
        lock(&self.writer).images.values().cloned().collect()
    }

    /// A number for a new image. It is spent even if the image is never put.
    pub(crate) fn take_serial(&self) -> u64 {
        let mut writer = lock(&self.writer);
        writer.next_serial += 1;
        writer.next_serial - 1
    }

    /// Makes a change durable. Changes that come while another is being written share one write.
    pub(crate) fn commit(&self, change: Change) -> Result<(), Refusal> {
        let batch = {
            let queue = lock(&self.queue);
            lock(&queue.changes).push(change);
            Arc::clone(&queue)
        };
        let mut writer = lock(&self.writer);
        if batch.outcome.get().is_none() {
            // Nobody before us wrote the batch, so that it is still the one that collects.
            *lock(&self.queue) = Arc::default();
            let changes = std::mem::take(&mut *lock(&batch.changes));
            let outcome = writer.append(changes).map_err(|error| error.to_string());
            let _ = batch.outcome.set(outcome);
        }
        match batch.outcome.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) if writer.has_failed => Err(Refusal::TableFailed),
            Some(Err(reason)) => Err(Refusal::TableUnwritable(reason.clone())),
            None => Err(Refusal::Bug("a batch of changes has no outcome".into())),
        }
    }
}

/// The root of the mount has number 1.
const FIRST_SERIAL: u64 = 2;

impl Writer {
    fn read(&mut self) -> Result<(), TableError> {
        let bytes = fs::read(&self.path).map_err(|source| self.io(source))?;
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(&bytes) {
            return self.begin();
        }
        let path = self.path.clone();
        let mut frames = Frames::new(&path, &bytes)?;
        while let Some(payload) = frames.next()? {
            let entry: Entry = serde_json::from_slice(payload).map_err(|error| frames.damaged(error))?;
            self.next_serial = self.next_serial.max(entry.next_serial);
            self.apply(entry.changes);
        }
        self.length = frames.end();
        if self.length < bytes.len() as u64 {
            // The crash that cut the last frame short did so before anybody was told of it.
            self.file.set_len(self.length).map_err(|source| self.io(source))?;
        }
        self.file.sync_data().map_err(|source| self.io(source))
    }

    fn begin(&mut self) -> Result<(), TableError> {
        let write = || {
            self.file.set_len(0)?;
            self.file.write_all_at(&MAGIC, 0)?;
            self.file.sync_all()?;
            sync_parent(&self.path)
        };
        write().map_err(|source| self.io(source))?;
        self.length = MAGIC.len() as u64;
        Ok(())
    }

    fn append(&mut self, changes: Vec<Change>) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write failed"));
        }
        let frame = self.encode(&changes)?;
        if let Err(error) = self.file.write_all_at(&frame, self.length) {
            // Half a frame would be damage as soon as another followed it.
            self.has_failed |= self.file.set_len(self.length).is_err();
            return Err(error);
        }
        if let Err(error) = self.file.sync_data() {
            // The kernel may have dropped the pages: nobody knows what the file says.
            self.has_failed = true;
            return Err(error);
        }
        self.length += frame.len() as u64;
        self.apply(changes);
        if self.length > self.rewrite_at {
            // The old file stays in force when this fails.
            let _ = self.rewrite();
        }
        Ok(())
    }

    fn encode(&self, changes: &[Change]) -> io::Result<Vec<u8>> {
        let entry = Entry { next_serial: self.next_serial, changes: changes.to_vec() };
        encode(&serde_json::to_vec(&entry).map_err(io::Error::other)?)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(image) => self.images.insert(image.name().clone(), *image),
                Change::Drop(name) => self.images.remove(&name),
            };
        }
    }

    /// Writes the table anew without its past.
    fn rewrite(&mut self) -> io::Result<()> {
        let path = replacement(&self.path);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(&MAGIC, 0)?;
        let mut length = MAGIC.len() as u64;
        let images = self.images.values().map(|image| vec![Change::Put(Box::new(image.clone()))]);
        // The first frame keeps the number even of an empty table.
        for changes in std::iter::once(Vec::new()).chain(images) {
            let frame = self.encode(&changes)?;
            file.write_all_at(&frame, length)?;
            length += frame.len() as u64;
        }
        file.sync_all()?;
        fs::rename(&path, &self.path)?;
        self.file = file;
        self.length = length;
        self.rewrite_at = (4 * length).max(MIN_REWRITE);
        // Until the directory is synced, a crash of the host may show the old file, which lacks what follows.
        self.has_failed |= sync_parent(&self.path).is_err();
        Ok(())
    }

    fn io(&self, source: io::Error) -> TableError {
        TableError::Io { path: self.path.clone(), source }
    }
}

fn replacement(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

// Changes are applied as a whole after they are durable; a panic elsewhere leaves a valid table.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
