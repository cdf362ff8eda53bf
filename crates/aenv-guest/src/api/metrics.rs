//! placeholder
use crate::http::{self, Response};
use crate::state::Daemon;
pub(crate) async fn get(_daemon: &Daemon) -> Response {
    http::status(hyper::StatusCode::NO_CONTENT)
}
