//! The `Start` call: from the request to a running, supervised process.

use std::sync::Arc;
use std::time::Duration;

use super::lifecycle::{self, Parent, Process, Running};
use super::messages::StartRequest;
use super::output::Subscription;
use super::resume::Description;
use super::spawn::{self, InputKind, Launch};
use super::{environment, frames, relay, terminal};
use crate::connect::{
    authorised_user, keepalive_interval, open_stream, read_single, timeout, Code, ConnectError,
};
use crate::http::{Request, Response};
use crate::state::Daemon;
use crate::users::User;

/// Starts a process and streams its events.
pub(super) async fn handle(daemon: Arc<Daemon>, request: Request) -> Result<Response, ConnectError> {
    let keepalive = keepalive_interval(request.headers());
    let limit = timeout(request.headers())?;
    let user = authorised_user(&daemon, request.headers())?;
    let message: StartRequest = read_single(request).await?;
    let (process, subscription) = start(&daemon, &user, message, limit)?;
    let (sender, response) = open_stream(Some(frames::start(process.pid)));
    tokio::spawn(relay::relay_start(sender, process, subscription, keepalive));
    Ok(response)
}

/// Never awaits: a caller who goes away leaves either no process or a supervised one.
fn start(
    daemon: &Arc<Daemon>,
    user: &User,
    message: StartRequest,
    limit: Option<Duration>,
) -> Result<(Arc<Process>, Subscription), ConnectError> {
    let input = input_kind(&message)?;
    let config = message.process;
    if config.cmd.is_empty() {
        return Err(ConnectError::invalid_argument("process.cmd must not be empty"));
    }
    if daemon.freezer.is_workload_frozen() {
        // It would stand still before it had begun, and hold us up.
        return Err(ConnectError::new(Code::Unavailable, "all processes are frozen at the moment"));
    }
    let environment = environment::variables(daemon, user, &config)?;
    let directory = environment::working_directory(daemon, user, &config)?;
    let group = daemon.processes.groups.take();
    let launch = Launch {
        config: &config,
        user,
        directory: &directory,
        environment: &environment,
        input,
        group: group.as_ref(),
    };
    let launched = spawn::launch(&launch).map_err(|error| start_error(&config.cmd, &error))?;
    let pid = launched.pid;
    let adopt = || {
        let description = Description::new(&config, message.tag.as_deref(), group.as_ref(), limit);
        let streams = launched.ends.streams(&launched.pidfd);
        let record = daemon.store.write_process(pid, streams, || description.to_bytes())?;
        Process::adopt(Running {
            pid,
            pidfd: launched.pidfd,
            ends: launched.ends,
            config: config.clone(),
            tag: message.tag,
            group,
            parent: Parent::Daemon,
            record,
        })
    };
    let (process, outputs) = adopt().map_err(|error| {
        spawn::discard(pid);
        start_error(&config.cmd, &error)
    })?;
    let subscription = process.output.subscribe();
    daemon.processes.insert(&process);
    tokio::spawn(lifecycle::supervise(Arc::clone(daemon), Arc::clone(&process), outputs, limit));
    Ok((process, subscription))
}

fn input_kind(message: &StartRequest) -> Result<InputKind, ConnectError> {
    match (&message.pty, message.stdin) {
        (Some(pty), _) => terminal::window(pty.size).map(InputKind::Terminal),
        // Older clients know no such field and expect a pipe.
        (None, None | Some(true)) => Ok(InputKind::Pipe),
        (None, Some(false)) => Ok(InputKind::Null),
    }
}

fn start_error(command: &str, error: &std::io::Error) -> ConnectError {
    let code = match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    ConnectError::new(code, spawn::describe_failure(command, error))
}
