//! Bytes on their way into a process. Whole messages, one after the other; waits while the process does not read.

use std::future::Future;
use std::time::Duration;

use super::lifecycle::{Input, Process};
use super::messages::ProcessInput;
use crate::connect::{Code, ConnectError};

/// Delivers the bytes of one message.
pub(super) async fn send(process: &Process, input: ProcessInput) -> Result<(), ConnectError> {
    let written = match (input, &process.input) {
        (ProcessInput { stdin: Some(bytes), pty: None }, Input::Pipe(pipe)) => {
            let pipe = pipe.lock().await;
            let Some(pipe) = pipe.as_ref() else {
                return Err(ConnectError::internal("stdin of the process is closed or was not enabled"));
            };
            pipe.write_all(&bytes).await
        }
        (ProcessInput { stdin: None, pty: Some(bytes) }, Input::Terminal { typing, .. }) => {
            typing.lock().await.write_all(&bytes).await
        }
        (ProcessInput { stdin: Some(_), pty: None }, Input::Terminal { .. }) => {
            return Err(ConnectError::internal("process has a terminal: send pty input"));
        }
        (ProcessInput { stdin: None, pty: Some(_) }, Input::Pipe(_)) => {
            return Err(ConnectError::internal("process has no terminal: send stdin input"));
        }
        (ProcessInput { stdin: None, pty: None }, _) => {
            return Err(ConnectError::new(Code::Unimplemented, "input has neither stdin nor pty"));
        }
        (ProcessInput { stdin: Some(_), pty: Some(_) }, _) => {
            return Err(ConnectError::invalid_argument("input has both stdin and pty"));
        }
    };
    written.map_err(|error| ConnectError::internal(format!("process does not take its input: {error}")))
}

/// Closes standard input, after what is being written. Doing it again changes nothing.
pub(super) async fn close(process: &Process) -> Result<(), ConnectError> {
    match &process.input {
        Input::Pipe(pipe) => {
            let mut pipe = pipe.lock().await;
            process.forget_input();
            pipe.take();
            Ok(())
        }
        Input::Terminal { .. } => {
            Err(ConnectError::new(Code::Unknown, "a terminal's input cannot be closed; send ^D instead"))
        }
    }
}

/// Bounds a call by the caller's time limit.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let Some(limit) = limit else { return call.await };
    let late = |_| ConnectError::new(Code::DeadlineExceeded, "the process did not take its input in time");
    tokio::time::timeout(limit, call).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}
