//! `POST /shutdown`: the host asks for a clean power-off.

use hyper::StatusCode;

use crate::http::{self, Response};
use crate::keeper::Word;
use crate::state::Daemon;

/// Passes the wish to the first process, which ends everything, this daemon included.
pub(crate) fn post(daemon: &Daemon) -> Response {
    if daemon.line.say(Word::PowerOff) {
        http::status(StatusCode::NO_CONTENT)
    } else {
        http::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "this daemon does not run below the guest's first process",
        )
    }
}
