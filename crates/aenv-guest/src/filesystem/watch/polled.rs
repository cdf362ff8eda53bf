//! `CreateWatcher`, `GetWatcherEvents`, `RemoveWatcher`: watchers that outlive their request, until they are removed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::events::FilesystemEvent;
use super::watcher::Watcher;
use super::{start, take_place, WatchRequest};
use crate::connect::{self, json, ConnectError};
use crate::http::Request;
use crate::state::Daemon;

/// A watcher that nobody asked for this long may be given up when its place is needed: clients crash.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// How long fetching rests after it failed.
const PUMP_PAUSE: Duration = Duration::from_secs(1);

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| Mutex::new(Registry::new()));

/// The answer to `CreateWatcher`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateResponse {
    watcher_id: String,
}

/// The answer to `GetWatcherEvents`.
#[derive(Debug, Serialize)]
pub(crate) struct EventsResponse {
    events: Vec<FilesystemEvent>,
}

/// The answer to `RemoveWatcher`.
#[derive(Debug, Serialize)]
pub(crate) struct RemoveResponse {}

#[derive(Debug, Deserialize)]
struct WatcherRequest {
    #[serde(default, rename = "watcherId", alias = "watcher_id", deserialize_with = "json::null_as_default")]
    watcher_id: String,
}

/// Starts a watcher.
pub(crate) async fn create(daemon: &Daemon, request: Request) -> Result<CreateResponse, ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let wanted: WatchRequest = connect::read_unary(request).await?;
    let place = take_place().or_else(|error| {
        registry().drop_abandoned(Instant::now());
        take_place().map_err(|_| error)
    })?;
    let watcher = Arc::new(start(wanted.scope(daemon, &user), place).await?);
    Ok(CreateResponse { watcher_id: registry().insert(watcher) })
}

/// Everything that has happened until now, and was not told before.
pub(crate) async fn get_events(request: Request) -> Result<EventsResponse, ConnectError> {
    let wanted: WatcherRequest = connect::read_unary(request).await?;
    let watcher = registry().find(&wanted.watcher_id)?;
    watcher.fetch().await?;
    Ok(EventsResponse { events: watcher.take()? })
}

/// Ends a watcher.
pub(crate) async fn remove(request: Request) -> Result<RemoveResponse, ConnectError> {
    let wanted: WatcherRequest = connect::read_unary(request).await?;
    registry().remove(&wanted.watcher_id)?;
    Ok(RemoveResponse {})
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watchers by id. Ids are not used again, also not by a daemon that takes over.
struct Registry {
    life: u128,
    next: u64,
    watchers: HashMap<String, Registered>,
}

struct Registered {
    watcher: Arc<Watcher>,
    pump: AbortHandle,
    last_asked: Instant,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Registry {
    fn new() -> Self {
        let life = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { life, next: 1, watchers: HashMap::new() }
    }

    fn insert(&mut self, watcher: Arc<Watcher>) -> String {
        let id = format!("w{:x}-{}", self.life, self.next);
        self.next += 1;
        let pump = tokio::spawn(pump(Arc::clone(&watcher))).abort_handle();
        self.watchers.insert(id.clone(), Registered { watcher, pump, last_asked: Instant::now() });
        id
    }

    fn find(&mut self, id: &str) -> Result<Arc<Watcher>, ConnectError> {
        let registered = self.watchers.get_mut(id).ok_or_else(|| unknown(id))?;
        registered.last_asked = Instant::now();
        Ok(Arc::clone(&registered.watcher))
    }

    fn remove(&mut self, id: &str) -> Result<(), ConnectError> {
        self.watchers.remove(id).map(drop).ok_or_else(|| unknown(id))
    }

    fn drop_abandoned(&mut self, now: Instant) {
        self.watchers.retain(|_, registered| now - registered.last_asked < ABANDONED_AFTER);
    }
}

fn unknown(id: &str) -> ConnectError {
    let shown: String = id.chars().take(64).collect();
    ConnectError::not_found(format!("watcher with id {shown} not found"))
}

/// Fetches events as they happen, so that directories that appear are watched at once.
async fn pump(watcher: Arc<Watcher>) {
    loop {
        if watcher.wait().await.is_err() {
            // All workers are busy, or the client that asks next gets the same error.
            tokio::time::sleep(PUMP_PAUSE).await;
        }
    }
}
