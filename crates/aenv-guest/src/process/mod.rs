//! Connect service `process.Process`.

use std::sync::Arc;

use crate::connect::{unary_response, Code, ConnectError};
use crate::http::{Request, Response};
use crate::state::Daemon;

/// Live processes.
#[derive(Debug, Default)]
pub(crate) struct Registry;

/// Answers a call of the service.
pub(crate) async fn handle(_daemon: Arc<Daemon>, method_name: &str, _request: Request) -> Response {
    unary_response(Err::<(), _>(ConnectError::new(Code::Unimplemented, format!("no method {method_name}"))))
}
