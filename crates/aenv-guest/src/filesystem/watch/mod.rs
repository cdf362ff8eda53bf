//! Watching directories: by stream, or by polling a watcher that outlives its request. Bounded in number and in memory;
//! what does not fit is reported as lost, never silently dropped.

mod directories;
mod events;
mod mounts;
pub(super) mod polled;
pub(super) mod stream;
mod watcher;

use std::path::PathBuf;

use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::directories::Directories;
use self::watcher::Watcher;
use crate::connect::{json, Code, ConnectError};
use crate::files::blocking;
use crate::state::Daemon;
use crate::users::User;

/// Watchers of both kinds. Each is a kernel object of which a user has 128 by default, and the workload wants some.
const WATCHERS_MAX: usize = 96;

static PLACES: Semaphore = Semaphore::const_new(WATCHERS_MAX);

/// `WatchDirRequest` and `CreateWatcherRequest`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    path: String,
    #[serde(default, deserialize_with = "json::null_as_default")]
    recursive: bool,
    #[serde(default, alias = "include_entry", deserialize_with = "json::null_as_default")]
    include_entry: bool,
    #[serde(default, alias = "allow_network_mounts", deserialize_with = "json::null_as_default")]
    allow_network_mounts: bool,
}

/// What to watch, and how.
#[derive(Debug, Clone)]
struct Scope {
    root: PathBuf,
    is_recursive: bool,
    includes_entry: bool,
    allows_network_mounts: bool,
}

impl WatchRequest {
    fn scope(self, daemon: &Daemon, user: &User) -> Scope {
        Scope {
            root: daemon.resolve_path(&self.path, user),
            is_recursive: self.recursive,
            includes_entry: self.include_entry,
            allows_network_mounts: self.allow_network_mounts,
        }
    }
}

/// Takes one of the few places for watchers.
fn take_place() -> Result<SemaphorePermit<'static>, ConnectError> {
    PLACES.try_acquire().map_err(|_| {
        let message = format!("there are {WATCHERS_MAX} watchers already; remove one first");
        ConnectError::new(Code::ResourceExhausted, message)
    })
}

/// Starts watching.
async fn start(scope: Scope, place: SemaphorePermit<'static>) -> Result<Watcher, ConnectError> {
    let directories = blocking::run(move || Directories::open(scope)).await??;
    Watcher::new(directories, place)
}
