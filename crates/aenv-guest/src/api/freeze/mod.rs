//! `POST /freeze`, `/unfreeze`, `/fsfreeze`, `/fsthaw`: the host stops the workload, or the disk, for a snapshot that is
//! consistent. Whoever stops something and never comes back finds it going again after a while.

mod deadline;
mod disk;
mod workload;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use crate::http::{self, Query, Request, Response};
use crate::state::Daemon;
use deadline::Deadline;

/// How long something stays frozen when the host does not come back, unless it asked for another time.
const HOLD_DEFAULT: Duration = Duration::from_secs(30);
const HOLD_MAX: Duration = Duration::from_secs(300);
/// How long to wait for processes to stand still, at most.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What is frozen at the moment.
#[derive(Debug, Default)]
pub(crate) struct Freezer {
    is_workload_frozen: Arc<AtomicBool>,
    workload: Deadline,
    disk: Deadline,
}

impl Freezer {
    /// Whether a process that is started now would stand still before it had begun.
    pub(crate) fn is_workload_frozen(&self) -> bool {
        self.is_workload_frozen.load(Ordering::Relaxed)
    }
}

/// A time in a query that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name} must be a number of milliseconds up to {limit_ms}")]
struct BadTime {
    name: &'static str,
    limit_ms: u128,
}

/// Lets go of what the daemon before had frozen: nobody else remembers when to.
pub(crate) fn thaw_after_predecessor(daemon: &Daemon) {
    if let Some(cgroup) = &daemon.options.cgroup {
        // Without cgroups there is nothing to thaw.
        let _ = workload::thaw(cgroup);
    }
    if daemon.options.owns_machine {
        // A disk that is not frozen says so with an error.
        let _ = disk::thaw();
    }
}

/// Answers `POST /freeze`: stops all processes, and says in a report when some would not stand still.
pub(crate) async fn freeze(daemon: &Daemon, request: &Request) -> Response {
    let query = Query::of(request.uri());
    let (wait, hold) = match (milliseconds(&query, "maxWaitMs", WAIT_MAX), hold(&query)) {
        (Ok(wait), Ok(hold)) => (wait.unwrap_or_default(), hold),
        (Err(error), _) | (_, Err(error)) => return http::error(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let Some(cgroup) = daemon.options.cgroup.clone() else { return unsupported() };
    let flag = Arc::clone(&daemon.freezer.is_workload_frozen);
    flag.store(true, Ordering::Relaxed);
    let release = release_workload(cgroup.clone(), Arc::clone(&flag));
    daemon.freezer.workload.set(hold, release);
    match workload::freeze(&cgroup, wait).await {
        Ok(report) if report.is_complete() => http::status(StatusCode::NO_CONTENT),
        Ok(report) => http::json(StatusCode::OK, &report),
        Err(error) => {
            daemon.freezer.workload.clear();
            flag.store(false, Ordering::Relaxed);
            failed("processes could not be frozen", &error)
        }
    }
}

/// Answers `POST /unfreeze`. Doing it again changes nothing.
pub(crate) fn unfreeze(daemon: &Daemon) -> Response {
    let Some(cgroup) = daemon.options.cgroup.clone() else { return unsupported() };
    daemon.freezer.workload.clear();
    let thawed = workload::thaw(&cgroup);
    daemon.freezer.is_workload_frozen.store(false, Ordering::Relaxed);
    answer("processes could not be thawed", thawed)
}

/// Answers `POST /fsfreeze`: everything written so far is on the disk, and nothing more gets there.
pub(crate) async fn freeze_disk(daemon: &Daemon, request: &Request) -> Response {
    let hold = match hold(&Query::of(request.uri())) {
        Ok(hold) => hold,
        Err(error) => return http::error(StatusCode::BAD_REQUEST, error.to_string()),
    };
    if !daemon.options.owns_machine {
        return unsupported();
    }
    // Before the disk is frozen: whatever happens to us meanwhile, it does not stay so.
    daemon.freezer.disk.set(hold, || drop(disk::thaw()));
    let frozen = tokio::task::spawn_blocking(disk::freeze).await;
    let frozen = frozen.unwrap_or_else(|error| Err(io::Error::other(error)));
    if frozen.is_err() {
        daemon.freezer.disk.clear();
    }
    answer("the disk could not be frozen", frozen)
}

/// Answers `POST /fsthaw`. Doing it again changes nothing.
pub(crate) fn thaw_disk(daemon: &Daemon) -> Response {
    if !daemon.options.owns_machine {
        return unsupported();
    }
    daemon.freezer.disk.clear();
    answer("the disk could not be thawed", disk::thaw())
}

fn release_workload(cgroup: PathBuf, flag: Arc<AtomicBool>) -> impl FnOnce() + Send + 'static {
    move || {
        let _ = workload::thaw(&cgroup);
        flag.store(false, Ordering::Relaxed);
    }
}

fn hold(query: &Query) -> Result<Duration, BadTime> {
    Ok(milliseconds(query, "holdMs", HOLD_MAX)?.unwrap_or(HOLD_DEFAULT))
}

fn milliseconds(query: &Query, name: &'static str, limit: Duration) -> Result<Option<Duration>, BadTime> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let duration = text.parse().ok().map(Duration::from_millis).filter(|duration| *duration <= limit);
    duration.map(Some).ok_or(BadTime { name, limit_ms: limit.as_millis() })
}

fn answer(what: &str, outcome: io::Result<()>) -> Response {
    match outcome {
        Ok(()) => http::status(StatusCode::NO_CONTENT),
        Err(error) => failed(what, &error),
    }
}

fn failed(what: &str, error: &io::Error) -> Response {
    http::error(StatusCode::SERVICE_UNAVAILABLE, format!("{what}: {error}"))
}

fn unsupported() -> Response {
    let message = "this daemon has no machine or no cgroups of its own, so there is nothing to freeze";
    http::error(StatusCode::SERVICE_UNAVAILABLE, message)
}
