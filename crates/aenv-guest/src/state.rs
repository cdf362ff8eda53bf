//! What the daemon knows between requests: token, environment, default user and directory, clock stamp, identity.
//! Only `/init` changes it. Locks are held for copies only, never across an await.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::keeper::{Line, Store};
use crate::options::DaemonOptions;
use crate::process::Registry;
use crate::users::{self, User, UserError};

/// Environment variables, in a stable order.
pub(crate) type Environment = BTreeMap<String, String>;

/// The part of the state that `/init` replaces.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Token that requests must carry; `None` leaves the daemon open.
    pub(crate) access_token: Option<String>,
    /// Variables pushed by the host for every process.
    pub(crate) environment: Environment,
    /// Variables that the daemon itself gives to every process (`E2B_SANDBOX` and its kin).
    pub(crate) identity: Environment,
    /// User of requests that name none.
    pub(crate) default_user: Option<String>,
    /// Directory of requests that name none.
    pub(crate) default_workdir: Option<String>,
    /// Newest `/init` timestamp seen, in nanoseconds since the epoch.
    pub(crate) newest_timestamp: Option<i128>,
}

/// The daemon's shared state.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Where and how the daemon was started.
    pub(crate) options: DaemonOptions,
    /// How busy the processors were, between two looks.
    pub(crate) processor_usage: crate::api::metrics::ProcessorUsage,
    /// The line to the keeper: in a guest its first process.
    pub(crate) line: Line,
    /// What outlives the daemon.
    pub(crate) store: Store,
    /// What is frozen for a snapshot.
    pub(crate) freezer: crate::api::freeze::Freezer,
    /// Gives memory back after load.
    pub(crate) memory: crate::memory::Trimmer,
    /// The live processes and those that ended a moment ago.
    pub(crate) processes: Registry,
    settings: Mutex<Settings>,
}

impl Daemon {
    /// A daemon with the settings of its predecessor; without one, nobody has initialised it yet.
    pub(crate) fn new(options: DaemonOptions, line: Line, store: Store, settings: Option<Settings>) -> Self {
        let settings = settings.unwrap_or_else(|| Settings {
            identity: Environment::from([("E2B_SANDBOX".to_owned(), "true".to_owned())]),
            ..Settings::default()
        });
        let processes = Registry::new(options.cgroup.clone());
        let processor_usage = crate::api::metrics::ProcessorUsage::default();
        let memory = crate::memory::Trimmer::default();
        let freezer = crate::api::freeze::Freezer::default();
        Self {
            options,
            processor_usage,
            line,
            store,
            freezer,
            memory,
            processes,
            settings: Mutex::new(settings),
        }
    }

    /// Locks the settings. Never keep the guard across an await.
    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directory of the small identity files.
    pub(crate) fn state_directory(&self) -> PathBuf {
        self.options.state_directory.clone()
    }

    /// The access token, when one is set.
    pub(crate) fn access_token(&self) -> Option<String> {
        self.settings().access_token.clone()
    }

    /// The variables every process starts with: the daemon's identity, then what the host pushed.
    pub(crate) fn global_environment(&self) -> Environment {
        let settings = self.settings();
        let mut environment = settings.identity.clone();
        environment.extend(settings.environment.clone());
        environment
    }

    /// The default working directory, when the host set one.
    pub(crate) fn default_workdir(&self) -> Option<String> {
        self.settings().default_workdir.clone()
    }

    /// The named user, or the default one. An empty name counts as absent.
    ///
    /// Before the host has chosen a default it is `user`, or `root` in images that have no such account.
    pub(crate) fn user(&self, name: Option<&str>) -> Result<User, UserError> {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return users::find(name);
        }
        let chosen = self.settings().default_user.clone();
        match chosen {
            Some(name) => users::find(&name),
            None => users::find("user").or_else(|_| users::find("root")),
        }
    }

    /// Turns a path of a request into an absolute one, by the rules of the contract.
    pub(crate) fn resolve_path(&self, path: &str, user: &User) -> PathBuf {
        crate::paths::resolve(path, &user.home, self.default_workdir().as_deref())
    }
}
