//! placeholder
use crate::http::{self, Response};
use crate::state::Daemon;
pub(crate) fn post(_daemon: &Daemon) -> Response {
    http::status(hyper::StatusCode::NO_CONTENT)
}
