//! Connect service `filesystem.Filesystem`: reads requests, resolves paths, and sends the work to a blocking worker.

pub(crate) mod attributes;
mod change;
mod entry;
mod errors;
mod list;
mod mode;
mod owners;
mod timestamp;
mod tree;
pub(crate) mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::entry::Entry;
use crate::connect::{self, json, unary_response, Code, ConnectError};
use crate::files::{blocking, memory};
use crate::http::{Request, Response};
use crate::state::Daemon;
use crate::users::User;

/// A listing whose memory is worth giving back.
const LARGE_LISTING: usize = 2_000;

#[derive(Debug, Deserialize)]
struct PathRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    path: String,
}

#[derive(Debug, Deserialize)]
struct ListRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    path: String,
    #[serde(default, deserialize_with = "json::u32_or_zero")]
    depth: u32,
}

#[derive(Debug, Deserialize)]
struct MoveRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    source: String,
    #[serde(default, deserialize_with = "json::null_as_default")]
    destination: String,
}

#[derive(Debug, Serialize)]
struct EntryResponse {
    entry: Entry,
}

#[derive(Debug, Serialize)]
struct ListResponse {
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct EmptyResponse {}

/// Answers a call of the service.
pub(crate) async fn handle(daemon: Arc<Daemon>, method_name: &str, request: Request) -> Response {
    match method_name {
        "Stat" => unary_response(stat(&daemon, request).await),
        "MakeDir" => unary_response(make_directory(&daemon, request).await),
        "Move" => unary_response(relocate(&daemon, request).await),
        "ListDir" => unary_response(list_directory(&daemon, request).await),
        "Remove" => unary_response(remove(&daemon, request).await),
        "WatchDir" => watch::stream::open(&daemon, request).await,
        "CreateWatcher" => unary_response(watch::polled::create(&daemon, request).await),
        "GetWatcherEvents" => unary_response(watch::polled::get_events(request).await),
        "RemoveWatcher" => unary_response(watch::polled::remove(request).await),
        other => {
            let error = ConnectError::new(
                Code::Unimplemented,
                format!("filesystem.Filesystem has no method {other}"),
            );
            unary_response(Err::<EmptyResponse, _>(error))
        }
    }
}

async fn stat(daemon: &Daemon, request: Request) -> Result<EntryResponse, ConnectError> {
    let (path, _user) = read_path(daemon, request).await?;
    let entry = blocking::run(move || change::stat(&path)).await??;
    Ok(EntryResponse { entry })
}

async fn make_directory(daemon: &Daemon, request: Request) -> Result<EntryResponse, ConnectError> {
    let (path, user) = read_path(daemon, request).await?;
    let entry = blocking::run(move || change::make_directory(&path, &user)).await??;
    Ok(EntryResponse { entry })
}

async fn remove(daemon: &Daemon, request: Request) -> Result<EmptyResponse, ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let wanted: PathRequest = connect::read_unary(request).await?;
    let path = daemon.resolve_path(named(&wanted.path, "path")?, &user);
    blocking::run(move || change::remove(&path)).await??;
    Ok(EmptyResponse {})
}

async fn relocate(daemon: &Daemon, request: Request) -> Result<EntryResponse, ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let wanted: MoveRequest = connect::read_unary(request).await?;
    let source = daemon.resolve_path(named(&wanted.source, "source")?, &user);
    let destination = daemon.resolve_path(named(&wanted.destination, "destination")?, &user);
    let entry = blocking::run(move || change::relocate(&source, &destination, &user)).await??;
    Ok(EntryResponse { entry })
}

async fn list_directory(daemon: &Daemon, request: Request) -> Result<ListResponse, ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let wanted: ListRequest = connect::read_unary(request).await?;
    let path = daemon.resolve_path(&wanted.path, &user);
    // Depth 0 is what a client sends that has no wish.
    let depth = wanted.depth.max(1) as usize;
    let entries = blocking::run(move || list::list(&path, depth)).await??;
    if entries.len() > LARGE_LISTING {
        memory::release_soon(&tokio::runtime::Handle::current());
    }
    Ok(ListResponse { entries })
}

async fn read_path(daemon: &Daemon, request: Request) -> Result<(PathBuf, User), ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let wanted: PathRequest = connect::read_unary(request).await?;
    Ok((daemon.resolve_path(&wanted.path, &user), user))
}

/// An empty path means the home directory, which nobody wants to move or remove by leaving out a field.
fn named<'a>(path: &'a str, field: &str) -> Result<&'a str, ConnectError> {
    if path.is_empty() {
        Err(ConnectError::invalid_argument(format!("{field} must not be empty")))
    } else {
        Ok(path)
    }
}

/// Any bytes are messages of these types, or not.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_messages(input: &[u8]) {
    let _ = serde_json::from_slice::<PathRequest>(input);
    let _ = serde_json::from_slice::<ListRequest>(input);
    let _ = serde_json::from_slice::<MoveRequest>(input);
}
