//! The calls of `process.Process`: which message, which answer. The work is done by the modules beside it.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::messages::{
    Empty, ProcessInfo, SelectRequest, SendInputRequest, SendSignalRequest, SignalName, StreamInputRequest,
    UpdateRequest,
};
use super::registry::Found;
use super::{frames, input, relay, start, terminal};
use crate::connect::{
    failed_stream, keepalive_interval, open_stream, read_single, read_stream, read_unary, timeout,
    unary_response, Code, ConnectError,
};
use crate::http::{Request, Response};
use crate::state::Daemon;

/// Answers a call of the service.
pub(crate) async fn handle(daemon: Arc<Daemon>, method_name: &str, request: Request) -> Response {
    match method_name {
        "Start" => start::handle(daemon, request).await.unwrap_or_else(failed_stream),
        "Connect" => connect(&daemon, request).await.unwrap_or_else(failed_stream),
        "StreamInput" => stream_input(&daemon, request).await,
        "List" => unary_response(list(&daemon, request).await),
        "Update" => unary_response(update(&daemon, request).await),
        "SendInput" => unary_response(send_input(&daemon, request).await),
        "SendSignal" => unary_response(send_signal(&daemon, request).await),
        "CloseStdin" => unary_response(close_stdin(&daemon, request).await),
        _ => unary_response(Err::<Empty, _>(ConnectError::new(
            Code::Unimplemented,
            format!("process.Process has no method {method_name}"),
        ))),
    }
}

async fn connect(daemon: &Daemon, request: Request) -> Result<Response, ConnectError> {
    let keepalive = keepalive_interval(request.headers());
    let limit = timeout(request.headers())?;
    let message: SelectRequest = read_single(request).await?;
    match daemon.processes.find_any(&message.process)? {
        Found::Live(process) => {
            let subscription = process.output.subscribe();
            let (sender, response) = open_stream(Some(frames::start(process.pid)));
            tokio::spawn(relay::relay_until(limit, sender, subscription, keepalive));
            Ok(response)
        }
        Found::Ended(grave) => {
            let (sender, response) = open_stream(Some(frames::start(grave.pid)));
            tokio::spawn(relay::repeat_end(sender, grave));
            Ok(response)
        }
    }
}

async fn list(daemon: &Daemon, request: Request) -> Result<Box<RawValue>, ConnectError> {
    #[derive(serde::Serialize)]
    struct ListResponse<'a> {
        processes: Vec<ProcessInfo<'a>>,
    }
    let Empty {} = read_unary(request).await?;
    let running = daemon.processes.running();
    let processes = running
        .iter()
        .map(|process| ProcessInfo { config: &process.config, pid: process.pid, tag: process.tag.as_deref() })
        .collect();
    serde_json::value::to_raw_value(&ListResponse { processes })
        .map_err(|error| ConnectError::internal(error.to_string()))
}

async fn update(daemon: &Daemon, request: Request) -> Result<Empty, ConnectError> {
    let message: UpdateRequest = read_unary(request).await?;
    let process = daemon.processes.find_running(&message.process)?;
    if let Some(pty) = message.pty {
        let size = terminal::window(pty.size)?;
        let resized =
            process.resize(size).ok_or_else(|| ConnectError::internal("process has no terminal"))?;
        resized.map_err(|error| ConnectError::internal(format!("terminal could not be resized: {error}")))?;
    }
    Ok(Empty {})
}

async fn send_input(daemon: &Daemon, request: Request) -> Result<Empty, ConnectError> {
    let limit = timeout(request.headers())?;
    let message: SendInputRequest = read_unary(request).await?;
    let process = daemon.processes.find_running(&message.process)?;
    input::within(limit, input::send(&process, message.input)).await?;
    Ok(Empty {})
}

async fn close_stdin(daemon: &Daemon, request: Request) -> Result<Empty, ConnectError> {
    let limit = timeout(request.headers())?;
    let message: SelectRequest = read_unary(request).await?;
    let process = daemon.processes.find_running(&message.process)?;
    input::within(limit, input::close(&process)).await?;
    Ok(Empty {})
}

async fn stream_input(daemon: &Daemon, request: Request) -> Response {
    match feed(daemon, request).await {
        Ok(()) => {
            let (sender, response) = open_stream(None);
            tokio::spawn(async move {
                let outcome = sender.send(&Empty {}).await;
                if outcome.is_ok() {
                    sender.finish(Ok(())).await;
                }
            });
            response
        }
        Err(error) => failed_stream(error),
    }
}

async fn feed(daemon: &Daemon, request: Request) -> Result<(), ConnectError> {
    let limit = timeout(request.headers())?;
    let mut messages = read_stream(request)?;
    let feeding = async {
        let mut process = None;
        while let Some(payload) = messages.next().await? {
            match (crate::connect::parse(&payload)?, &process) {
                (StreamInputRequest { start: Some(start), .. }, None) => {
                    process = Some(daemon.processes.find_running(&start.process)?);
                }
                (StreamInputRequest { data: Some(data), .. }, Some(process)) => {
                    input::send(process, data.input).await?;
                }
                (StreamInputRequest { keepalive: Some(_), .. }, _) => {}
                (_, None) => return Err(ConnectError::invalid_argument("the first message must be start")),
                (StreamInputRequest { start: Some(_), .. }, _) => {
                    return Err(ConnectError::invalid_argument("start is possible only once"));
                }
                _ => return Err(ConnectError::new(Code::Unimplemented, "message has no known event")),
            }
        }
        Ok(())
    };
    input::within(limit, feeding).await
}

async fn send_signal(daemon: &Daemon, request: Request) -> Result<Empty, ConnectError> {
    let message: SendSignalRequest = read_unary(request).await?;
    let process = daemon.processes.find_running(&message.process)?;
    let signal = match message.signal {
        Some(SignalName::Name(name)) if name == "SIGNAL_SIGKILL" => libc::SIGKILL,
        Some(SignalName::Name(name)) if name == "SIGNAL_SIGTERM" => libc::SIGTERM,
        Some(SignalName::Number(9)) => libc::SIGKILL,
        Some(SignalName::Number(15)) => libc::SIGTERM,
        other => {
            let message = format!("signal {other:?} is not supported; use SIGNAL_SIGKILL or SIGNAL_SIGTERM");
            return Err(ConnectError::new(Code::Unimplemented, message));
        }
    };
    match process.signal(signal) {
        Ok(()) => Ok(Empty {}),
        // It has ended, and we have not been told yet.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            Err(ConnectError::not_found(format!("process with pid {} not found", process.pid)))
        }
        Err(error) => Err(ConnectError::internal(format!("process could not be signalled: {error}"))),
    }
}
