//! placeholder
use crate::http::{self, Request, Response};
use crate::state::Daemon;
pub(crate) async fn post(_daemon: &Daemon, _request: Request) -> Response {
    http::status(hyper::StatusCode::NO_CONTENT)
}
