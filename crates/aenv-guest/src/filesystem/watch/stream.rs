//! `WatchDir`: events as a stream, for as long as the client listens.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;

use super::events::FilesystemEvent;
use super::watcher::Watcher;
use super::{start, take_place, WatchRequest};
use crate::connect::{self, failed_stream, open_stream, Code, ConnectError, EventSender};
use crate::http::{Request, Response};
use crate::state::Daemon;

/// The messages of the stream, in the form of the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Message<'a> {
    Start {},
    Filesystem(&'a FilesystemEvent),
    Keepalive {},
}

/// Opens a stream of events. Its first message is sent when the directory is being watched.
pub(crate) async fn open(daemon: &Daemon, request: Request) -> Response {
    let (watcher, limits) = match prepare(daemon, request).await {
        Ok(prepared) => prepared,
        Err(error) => return failed_stream(error),
    };
    let (sender, response) = open_stream(None);
    tokio::spawn(async move {
        let outcome = limits.enforce(forward_events(&watcher, &sender, limits.keepalive)).await;
        // The place is free before the client learns that the stream has ended.
        drop(watcher);
        sender.finish(outcome).await;
    });
    response
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    timeout: Option<Duration>,
    keepalive: Duration,
}

impl Limits {
    async fn enforce(self, work: impl Future<Output = Result<(), ConnectError>>) -> Result<(), ConnectError> {
        let Some(timeout) = self.timeout else { return work.await };
        let outcome = tokio::time::timeout(timeout, work).await;
        outcome.unwrap_or_else(|_| {
            Err(ConnectError::new(Code::DeadlineExceeded, "the time limit of the watch is over"))
        })
    }
}

async fn prepare(daemon: &Daemon, request: Request) -> Result<(Watcher, Limits), ConnectError> {
    let user = connect::authorised_user(daemon, request.headers())?;
    let limits = Limits {
        timeout: connect::timeout(request.headers())?,
        keepalive: connect::keepalive_interval(request.headers()),
    };
    let wanted: WatchRequest = connect::read_single(request).await?;
    let watcher = start(wanted.scope(daemon, &user), take_place()?).await?;
    Ok((watcher, limits))
}

/// Runs until the client goes away or events are lost.
async fn forward_events(
    watcher: &Watcher,
    sender: &EventSender,
    keepalive: Duration,
) -> Result<(), ConnectError> {
    let mut is_open = sender.send(&Message::Start {}).await.is_ok();
    while is_open {
        tokio::select! {
            fetched = watcher.wait() => fetched?,
            () = tokio::time::sleep(keepalive) => {
                is_open = sender.send(&Message::Keepalive {}).await.is_ok();
            }
            () = sender.closed() => return Ok(()),
        }
        for event in &watcher.take()? {
            is_open = sender.send(&Message::Filesystem(event)).await.is_ok();
            if !is_open {
                break;
            }
        }
    }
    Ok(())
}
