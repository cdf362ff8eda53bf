//! REST routes `/files` and `/files/compose`: who may call them, and which file does what.

mod access;
pub(crate) mod blocking;
mod body;
mod compose;
mod conditions;
mod download;
mod encoding;
mod errors;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod media;
pub(crate) mod memory;
pub(crate) mod metadata;
pub(crate) mod open;
mod signature;
mod upload;
mod written;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;

use self::access::Claim;
use self::errors::FileError;
use self::signature::Operation;
use crate::http::{Query, Request, Response};
use crate::state::Daemon;
use crate::users::User;

#[cfg(feature = "fuzzing")]
pub(crate) use self::{fuzz::*, upload::fuzz_form};

/// Answers a request to `/files` or `/files/compose`.
pub(crate) async fn handle(daemon: Arc<Daemon>, request: Request) -> Response {
    let outcome = match (request.method(), request.uri().path()) {
        (&Method::GET, "/files") => get(&daemon, &request).await,
        (&Method::POST, "/files") => post(&daemon, request).await,
        // The token has been checked like that of any other route.
        (&Method::POST, "/files/compose") => compose::post(&daemon, request).await,
        (method, _) => Err(FileError::MethodNotAllowed(method.to_string())),
    };
    outcome.unwrap_or_else(FileError::into_response)
}

async fn get(daemon: &Daemon, request: &Request) -> Result<Response, FileError> {
    let query = Query::of(request.uri());
    let user = admit(daemon, request, &query, Operation::Read)?;
    let path = daemon.resolve_path(query.get("path").unwrap_or_default(), &user);
    download::get(path, request.headers()).await
}

async fn post(daemon: &Daemon, request: Request) -> Result<Response, FileError> {
    let query = Query::of(request.uri());
    let user = admit(daemon, &request, &query, Operation::Write)?;
    upload::post(daemon, user, &query, request).await
}

/// Checks the right to the operation, then finds the user it is done for.
fn admit(daemon: &Daemon, request: &Request, query: &Query, operation: Operation) -> Result<User, FileError> {
    let token = request.headers().get("x-access-token").map(hyper::header::HeaderValue::as_bytes);
    let claim = Claim { token, query, operation };
    access::check(&claim, daemon.access_token().as_deref(), now_seconds())?;
    Ok(daemon.user(query.get("username"))?)
}

fn now_seconds() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
