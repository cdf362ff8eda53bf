//! An image that is open: what it consists of, its bytes once they are there, and the threads that wait for it.
//! It does not know who shows it to whom.

mod content;
mod counters;
mod description;
mod failure;
mod name;
mod plain;
mod pool;
mod recorder;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;

pub(crate) use content::{AccessError, Content, Target, WritableDisk, READ_MARGIN};
pub(crate) use counters::Counters;
#[cfg(test)]
pub(crate) use description::OverwritePolicy;
pub(crate) use description::{is_remote, Description, Frozen, OpenArguments, Seal, Use, WritableArguments};
pub(crate) use name::ImageName;
pub(crate) use plain::PlainFile;
pub(crate) use pool::Pool;
pub(crate) use recorder::{Range, Recorder, MAX_RANGES};

/// Threads that wait for the network on behalf of one image.
const REMOTE_THREADS: usize = 8;
/// Threads that wait for the disk on behalf of one image.
const LOCAL_THREADS: usize = 2;

/// An open image.
pub(crate) struct Image {
    name: ImageName,
    serial: u64,
    purpose: Use,
    owner: u32,
    is_writable: bool,
    is_remote: bool,
    is_plain: bool,
    description: Mutex<Arc<Description>>,
    content: OnceLock<Result<Content, String>>,
    settling: Mutex<()>,
    settled: Condvar,
    /// Where work goes that may wait.
    pub(crate) pool: Pool,
    /// What was read and written.
    pub(crate) counters: Counters,
    /// Who writes down what is read.
    pub(crate) recorder: Recorder,
}

impl Image {
    /// An image whose bytes are still to come.
    pub(crate) fn new(description: Description) -> Self {
        let is_remote = description.layers.iter().any(is_remote);
        Self {
            name: description.name().clone(),
            serial: description.serial,
            purpose: description.opened.purpose,
            owner: description.opened.owner,
            is_writable: description.opened.writable.is_some(),
            is_remote,
            is_plain: description.opened.plain.is_some(),
            description: Mutex::new(Arc::new(description)),
            content: OnceLock::new(),
            settling: Mutex::new(()),
            settled: Condvar::new(),
            pool: Pool::new(if is_remote { REMOTE_THREADS } else { LOCAL_THREADS }),
            counters: Counters::default(),
            recorder: Recorder::default(),
        }
    }

    pub(crate) fn name(&self) -> &ImageName {
        &self.name
    }

    /// The number that no other image ever has.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn purpose(&self) -> Use {
        self.purpose
    }

    /// The user who may open it, besides root.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether it is a plain file that the kernel may read by itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// What it consists of now.
    pub(crate) fn description(&self) -> Arc<Description> {
        Arc::clone(&self.hold_description())
    }

    /// Replaces what it consists of; the table must say so already.
    pub(crate) fn set_description(&self, description: Description) {
        *self.hold_description() = Arc::new(description);
    }

    /// The bytes arrived, or will not.
    pub(crate) fn settle(&self, content: Result<Content, String>) {
        let _settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever settles an image twice has the same outcome twice: the first one stays.
        let _ = self.content.set(content);
        self.settled.notify_all();
    }

    /// The bytes, if they are there and reading them takes no longer than a disk takes.
    pub(crate) fn content_at_once(&self) -> Option<&Content> {
        if self.is_remote {
            return None;
        }
        self.content.get().and_then(|content| content.as_ref().ok())
    }

    /// Waits for the bytes.
    pub(crate) fn content(&self) -> Result<&Content, Unreadable> {
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(content) = self.content.get() {
                return content.as_ref().map_err(|reason| Unreadable(reason.clone()));
            }
            settling = self.settled.wait(settling).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The bytes or the reason why there are none; nothing while that is open.
    pub(crate) fn content_nowait(&self) -> Option<Result<&Content, Unreadable>> {
        self.content.get().map(|content| content.as_ref().map_err(|reason| Unreadable(reason.clone())))
    }

    fn hold_description(&self) -> MutexGuard<'_, Arc<Description>> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an image of the table has no bytes: a layer is gone or damaged.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the image cannot be read: {0}")]
pub(crate) struct Unreadable(pub(crate) String);

impl Unreadable {
    /// What the user of a file hears.
    pub(crate) fn errno(&self) -> Errno {
        Errno::EIO
    }
}
