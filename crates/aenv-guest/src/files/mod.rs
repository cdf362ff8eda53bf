//! REST routes `/files` and `/files/compose`.

use std::sync::Arc;

use hyper::StatusCode;

use crate::http::{self, Request, Response};
use crate::state::Daemon;

/// Answers a request to `/files` or `/files/compose`.
pub(crate) async fn handle(_daemon: Arc<Daemon>, _request: Request) -> Response {
    http::error(StatusCode::NOT_IMPLEMENTED, "not there yet")
}
