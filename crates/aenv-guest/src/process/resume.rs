//! Processes across the daemon's death: what is written down when one starts, and how the next daemon takes it over.
//! Output of the time between stays in the pipe, and is delivered or discarded as if it had just come.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::lifecycle::{self, Parent, Process, Running};
use super::messages::ProcessConfig;
use super::spawn::Ends;
use crate::keeper::{self, Record, Streams};
use crate::state::Daemon;

/// What the daemon knows of a process beyond its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    config: ProcessConfig,
    tag: Option<String>,
    group: Option<String>,
    /// When its time limit ends it, in nanoseconds of the clock that only runs forward.
    deadline: Option<u64>,
}

impl Description {
    /// Of a process that starts now.
    pub(super) fn new(
        config: &ProcessConfig,
        tag: Option<&str>,
        group: Option<&Group>,
        limit: Option<Duration>,
    ) -> Self {
        let nanoseconds = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self {
            config: config.clone(),
            tag: tag.map(str::to_owned),
            group: group.map(Group::name),
            deadline: limit.map(|limit| keeper::now().saturating_add(nanoseconds(limit))),
        }
    }

    /// As it is written down.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Plain structs with string keys cannot fail to serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(keeper::now())))
    }
}

/// Takes over the processes of the daemon before.
pub(crate) fn resume(daemon: &Arc<Daemon>, records: Vec<Record>) {
    let mut owned = BTreeSet::new();
    for record in records {
        match resume_one(daemon, record) {
            Ok(group) => owned.extend(group),
            // Its descriptors are closed, so it is on its own now.
            Err(error) => eprintln!("aenv-guest: a process could not be taken over: {error}"),
        }
    }
    daemon.processes.groups.take_leftovers(&owned);
    // The first start need not wait for it.
    daemon.processes.groups.prepare();
}

/// Gives the name of the process's group.
fn resume_one(daemon: &Arc<Daemon>, record: Record) -> io::Result<Option<String>> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "the record is not whole");
    let head = record.head().ok_or_else(missing)?;
    let (pidfd, ends) = take_descriptors(head.streams);
    let description: Description = serde_json::from_slice(&record.body()?)?;
    let limit = description.time_left();
    let running = Running {
        pid: head.pid,
        pidfd,
        ends,
        group: description.group.as_deref().and_then(|name| daemon.processes.groups.resume(name)),
        config: description.config,
        tag: description.tag,
        parent: Parent::Keeper,
        record: Some(record),
    };
    let (process, outputs) = Process::adopt(running)?;
    daemon.processes.insert(&process);
    tokio::spawn(lifecycle::supervise(Arc::clone(daemon), process, outputs, limit));
    Ok(description.group)
}

fn take_descriptors(streams: Streams) -> (OwnedFd, Ends) {
    // SAFETY: the keeper has kept exactly these numbers open for us, and each record is taken over once.
    let take = |number: RawFd| unsafe { OwnedFd::from_raw_fd(number) };
    let ends = Ends {
        input: streams.input.map(take),
        stdout: streams.stdout.map(take),
        stderr: streams.stderr.map(take),
        terminal: streams.terminal.map(take),
    };
    (take(streams.pidfd), ends)
}
