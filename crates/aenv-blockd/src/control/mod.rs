//! The control socket: who may connect, and one thread per connection and per request, all bounded. Answers come in
//! the order in which work is done.

mod frame;
mod request;
mod verbs;

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use serde_json::{json, Value};

use crate::log;
use crate::refusal::Refusal;
use crate::server::Stop;
pub(crate) use frame::{read as read_frame, write as write_frame};
use request::Envelope;
pub(crate) use verbs::Control;

/// Connections at once.
const MAX_CONNECTIONS: usize = 128;
/// Requests at once, all connections together.
const MAX_REQUESTS: usize = 512;
/// How long a peer may take to accept an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Places of a bounded crowd.
struct Places {
    taken: AtomicUsize,
    limit: usize,
}

/// One of them.
struct Place(Arc<Places>);

impl Places {
    fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), limit })
    }

    fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        (self.taken.fetch_add(1, Ordering::AcqRel) < self.limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves the socket for as long as the program lives.
pub(crate) fn serve(listener: &UnixListener, control: &Arc<Control>, stop: &Sender<Stop>) {
    let connections = Places::new(MAX_CONNECTIONS);
    let requests = Places::new(MAX_REQUESTS);
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::warning("connection_not_accepted", &[("reason", &error.to_string())]);
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        if !is_trusted(&stream) {
            log::warning("connection_refused", &[("reason", &"the peer is another user")]);
            continue;
        }
        let Some(place) = connections.take() else {
            log::warning("connection_refused", &[("reason", &"there are too many")]);
            continue;
        };
        let (control, requests, stop) = (Arc::clone(control), Arc::clone(&requests), stop.clone());
        let spawned = thread::Builder::new().name("control".into()).spawn(move || {
            let _place = place;
            if let Err(error) = converse(stream, &control, &requests, &stop) {
                log::warning("connection_lost", &[("reason", &error.to_string())]);
            }
        });
        if let Err(error) = spawned {
            log::warning("connection_refused", &[("reason", &error.to_string())]);
        }
    }
}

fn is_trusted(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

fn converse(
    mut stream: UnixStream,
    control: &Arc<Control>,
    requests: &Arc<Places>,
    stop: &Sender<Stop>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let answers = Arc::new(Mutex::new(stream.try_clone()?));
    while let Some(frame) = frame::read(&mut stream)? {
        let envelope = match Envelope::parse(&frame) {
            Ok(envelope) => envelope,
            Err(refusal) => {
                send(&answers, Value::Null, Err(refusal));
                continue;
            }
        };
        let id = envelope.id;
        let Some(place) = requests.take() else {
            send(&answers, id.into(), Err(Refusal::TooMany("too many requests are under way")));
            continue;
        };
        let (control, sink, stop) = (Arc::clone(control), Arc::clone(&answers), stop.clone());
        let spawned = thread::Builder::new().name("request".into()).spawn(move || {
            let _place = place;
            let work = AssertUnwindSafe(|| envelope.into_verb().and_then(|verb| control.perform(verb)));
            let outcome = catch_unwind(work)
                .unwrap_or_else(|_| Err(Refusal::Bug("a thread panicked over this request".into())));
            match outcome {
                Ok(performed) => {
                    send(&sink, id.into(), Ok(performed.result));
                    if let Some(how) = performed.stop {
                        // The main thread listens for as long as the program lives.
                        let _ = stop.send(how);
                    }
                }
                Err(refusal) => send(&sink, id.into(), Err(refusal)),
            }
        });
        if spawned.is_err() {
            send(&answers, id.into(), Err(Refusal::TooMany("there are no threads left")));
        }
    }
    Ok(())
}

fn send(stream: &Mutex<UnixStream>, id: Value, outcome: Result<Value, Refusal>) {
    let answer = match outcome {
        Ok(result) => json!({ "id": id, "result": result }),
        Err(refusal) => {
            let (kind, code) = refusal.classify();
            let error = json!({ "kind": kind.as_str(), "code": code, "message": refusal.sentence() });
            json!({ "id": id, "error": error })
        }
    };
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = frame::write(&mut *stream, answer.to_string().as_bytes()) {
        // Half an answer cannot be taken back: the peer must see the end.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        log::warning("answer_lost", &[("reason", &error.to_string())]);
    }
}
