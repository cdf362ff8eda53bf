//! One watcher: knows when its directories have news, fetches them through a blocking worker, and keeps them in order
//! until somebody takes them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::sync::{Notify, SemaphorePermit};

use super::directories::Directories;
use super::events::FilesystemEvent;
use crate::connect::{Code, ConnectError};
use crate::files::blocking;

/// Events that wait in our memory. When they are this many, the rest waits in the kernel, which has a bound of its own.
const EVENTS_MAX: usize = 4096;

/// A watcher of either kind.
#[derive(Debug)]
pub(super) struct Watcher {
    /// A second descriptor of the inotify instance, so that waiting needs no lock.
    readiness: AsyncFd<OwnedFd>,
    directories: Arc<Mutex<Directories>>,
    inbox: Arc<Mutex<Inbox>>,
    room: Notify,
    _place: SemaphorePermit<'static>,
}

/// Events that nobody has taken yet.
#[derive(Debug, Default)]
struct Inbox {
    events: Vec<FilesystemEvent>,
    lost: Option<String>,
}

impl Watcher {
    /// Must be called on the runtime.
    pub(super) fn new(
        directories: Directories,
        place: SemaphorePermit<'static>,
    ) -> Result<Self, ConnectError> {
        let descriptor = directories.descriptor().try_clone_to_owned().map_err(|error| broken(&error))?;
        // SAFETY: an owned descriptor stays open and the same for as long as it lives, and the `AsyncFd` owns it.
        let readiness = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self {
            readiness: readiness.map_err(|error| broken(&error.into()))?,
            directories: Arc::new(Mutex::new(directories)),
            inbox: Arc::default(),
            room: Notify::new(),
            _place: place,
        })
    }

    /// Waits until something happened and there is room for it, then fetches it. Cancelling it loses nothing.
    pub(super) async fn wait(&self) -> Result<(), ConnectError> {
        while lock(&self.inbox).events.len() >= EVENTS_MAX {
            self.room.notified().await;
        }
        let mut ready = self.readiness.readable().await.map_err(|error| broken(&error))?;
        if self.fetch().await? {
            ready.clear_ready();
        }
        Ok(())
    }

    /// Fetches what has happened so far; says whether the kernel has no more.
    pub(super) async fn fetch(&self) -> Result<bool, ConnectError> {
        let (directories, inbox) = (Arc::clone(&self.directories), Arc::clone(&self.inbox));
        let is_drained = blocking::run(move || {
            // Held until the events are in the inbox: two fetches must not swap theirs.
            let mut directories = lock(&directories);
            let wanted = EVENTS_MAX.saturating_sub(lock(&inbox).events.len());
            let harvest = directories.harvest(wanted);
            let mut inbox = lock(&inbox);
            inbox.events.extend(harvest.events);
            inbox.lost = inbox.lost.take().or(harvest.lost);
            harvest.is_drained
        });
        Ok(is_drained.await?)
    }

    /// Takes what has been fetched. After a loss the client must look for itself, so what is left is no help: it gets
    /// the error once, and a fresh start.
    pub(super) fn take(&self) -> Result<Vec<FilesystemEvent>, ConnectError> {
        let inbox = std::mem::take(&mut *lock(&self.inbox));
        self.room.notify_one();
        match inbox.lost {
            None => Ok(inbox.events),
            Some(reason) => {
                let message = format!("events were lost, list the directory to see its state: {reason}");
                Err(ConnectError::new(Code::DataLoss, message))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(error: &io::Error) -> ConnectError {
    ConnectError::internal(format!("watcher does not work: {error}"))
}
