//! Which processes there are: the live ones, and for a moment those that ended.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::group::Groups;
use super::lifecycle::Process;
use super::messages::Selector;
use crate::connect::ConnectError;

/// How long an ended process can still be connected to.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);
/// A guest that starts thousands of short processes per second must not fill our memory with their graves.
const REMEMBERED_MAX: usize = 4096;

/// All processes started through the daemon.
#[derive(Debug)]
pub(crate) struct Registry {
    state: Mutex<State>,
    pub(super) groups: Groups,
}

#[derive(Debug, Default)]
struct State {
    live: HashMap<u32, Arc<Process>>,
    ended: VecDeque<Grave>,
}

/// What is left of a process: enough to repeat its last word, and no descriptor.
#[derive(Debug, Clone)]
pub(super) struct Grave {
    pub(super) pid: u32,
    pub(super) end: Bytes,
    tag: Option<String>,
    dug_at: Instant,
}

/// What a selector may mean.
pub(super) enum Found {
    /// A process that runs, or whose output is still open.
    Live(Arc<Process>),
    /// A process that ended a moment ago.
    Ended(Grave),
}

impl Registry {
    /// A registry of no processes, which will live in cgroups below the given directory.
    pub(crate) fn new(cgroup: Option<PathBuf>) -> Self {
        Self { state: Mutex::default(), groups: Groups::below(cgroup) }
    }

    /// Adds a process that has just started. Its pid may be that of one whose streams are still open: that one lives
    /// on in its streams only.
    pub(super) fn insert(&self, process: &Arc<Process>) {
        self.lock().live.insert(process.pid, Arc::clone(process));
    }

    /// Moves a process from the living to the remembered.
    pub(super) fn retire(&self, process: &Arc<Process>, end: Bytes) {
        let mut state = self.lock();
        if state.live.get(&process.pid).is_some_and(|found| Arc::ptr_eq(found, process)) {
            state.live.remove(&process.pid);
        }
        let grave = Grave { pid: process.pid, end, tag: process.tag.clone(), dug_at: Instant::now() };
        state.ended.push_back(grave);
        state.forget();
    }

    /// The processes that run, by pid.
    pub(super) fn running(&self) -> Vec<Arc<Process>> {
        let mut running: Vec<_> =
            self.lock().live.values().filter(|process| process.is_running()).cloned().collect();
        running.sort_by_key(|process| process.pid);
        running
    }

    /// A process that runs.
    pub(super) fn find_running(&self, selector: &Selector) -> Result<Arc<Process>, ConnectError> {
        check(selector)?;
        let state = self.lock();
        let found = state.find_live(selector, |process| process.is_running());
        found.cloned().ok_or_else(|| not_found(selector))
    }

    /// A process that runs, whose output is still open, or that ended a moment ago.
    pub(super) fn find_any(&self, selector: &Selector) -> Result<Found, ConnectError> {
        check(selector)?;
        let mut state = self.lock();
        state.forget();
        let live = state.find_live(selector, |_| true).map(|process| Found::Live(Arc::clone(process)));
        let ended = || state.find_ended(selector).map(|grave| Found::Ended(grave.clone()));
        live.or_else(ended).ok_or_else(|| not_found(selector))
    }

    /// Whether this is still the process that its pid means.
    pub(super) fn is_current(&self, process: &Arc<Process>) -> bool {
        self.lock().live.get(&process.pid).is_some_and(|found| Arc::ptr_eq(found, process))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find_live(&self, selector: &Selector, accept: impl Fn(&Process) -> bool) -> Option<&Arc<Process>> {
        match selector.pid {
            Some(pid) => self.live.get(&pid).filter(|process| accept(process)),
            None => self.live.values().find(|process| process.tag == selector.tag && accept(process)),
        }
    }

    fn find_ended(&self, selector: &Selector) -> Option<&Grave> {
        self.ended.iter().rev().find(|grave| match selector.pid {
            Some(pid) => grave.pid == pid,
            None => grave.tag == selector.tag,
        })
    }

    fn forget(&mut self) {
        let is_old = |grave: &Grave| grave.dug_at.elapsed() >= REMEMBERED_FOR;
        while self.ended.len() > REMEMBERED_MAX || self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }
}

fn check(selector: &Selector) -> Result<(), ConnectError> {
    match selector {
        Selector { pid: None, tag: None } => {
            Err(ConnectError::invalid_argument("process must be selected by pid or tag"))
        }
        Selector { pid: Some(_), tag: Some(_) } => {
            Err(ConnectError::invalid_argument("process must be selected by either pid or tag, not both"))
        }
        _ => Ok(()),
    }
}

fn not_found(selector: &Selector) -> ConnectError {
    ConnectError::not_found(match (selector.pid, &selector.tag) {
        (Some(pid), _) => format!("process with pid {pid} not found"),
        (None, tag) => format!("process with tag {} not found", tag.as_deref().unwrap_or_default()),
    })
}
