//! Carries a subscription's frames into one client's stream, with keepalives and the client's own time limit. The stream
//! has begun already, with the start event.

use std::time::Duration;

use super::frames;
use super::lifecycle::Process;
use super::output::{Delivery, Subscription};
use super::registry::Grave;
use crate::connect::{Closed, Code, ConnectError, EventSender};

/// Why a relay stopped, when the client is still there.
type Outcome = Result<(), ConnectError>;

/// The stream of the caller that started the process: when the time limit ended the process, the stream says so.
pub(super) async fn relay_start(
    sender: EventSender,
    process: std::sync::Arc<Process>,
    subscription: Subscription,
    keepalive: Duration,
) {
    let is_timed_out = || process.is_timed_out();
    if let Ok(outcome) = relay(&sender, &subscription, keepalive, is_timed_out).await {
        sender.finish(outcome).await;
    }
}

/// The stream of another caller, whose time limit ends only the stream.
pub(super) async fn relay_until(
    limit: Option<Duration>,
    sender: EventSender,
    subscription: Subscription,
    keepalive: Duration,
) {
    let relaying = relay(&sender, &subscription, keepalive, || false);
    let ended = match limit {
        Some(limit) => {
            tokio::time::timeout(limit, relaying).await.unwrap_or_else(|_| Ok(Err(deadline_exceeded())))
        }
        None => relaying.await,
    };
    // The queue must go before the last frame waits for a client that may never read it.
    drop(subscription);
    if let Ok(outcome) = ended {
        sender.finish(outcome).await;
    }
}

/// The stream of a caller who came after the end.
pub(super) async fn repeat_end(sender: EventSender, grave: Grave) {
    if sender.send_encoded(grave.end).await.is_ok() {
        sender.finish(Ok(())).await;
    }
}

async fn relay(
    sender: &EventSender,
    subscription: &Subscription,
    keepalive: Duration,
    is_timed_out: impl Fn() -> bool,
) -> Result<Outcome, Closed> {
    loop {
        let delivery = tokio::select! {
            delivery = tokio::time::timeout(keepalive, subscription.next()) => delivery,
            () = sender.closed() => return Err(Closed),
        };
        match delivery {
            Err(_silence) => sender.send_encoded(frames::keepalive()).await?,
            Ok(Delivery::Frame(frame)) => sender.send_encoded(frame).await?,
            Ok(Delivery::End(_)) if is_timed_out() => return Ok(Err(deadline_exceeded())),
            Ok(Delivery::End(end)) => {
                sender.send_encoded(end).await?;
                return Ok(Ok(()));
            }
            Ok(Delivery::Dropped) => return Ok(Err(dropped())),
        }
    }
}

fn deadline_exceeded() -> ConnectError {
    ConnectError::new(Code::DeadlineExceeded, "the time limit of the call was reached")
}

fn dropped() -> ConnectError {
    let message = "this stream stood still while others read; output was lost, connect again to go on";
    ConnectError::new(Code::ResourceExhausted, message)
}
