//! The daemon's side of survival: writes down what the next daemon needs. Without a keeper it writes nothing.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use nix::sys::memfd::{memfd_create, MFdFlags};
use serde::{Deserialize, Serialize};

use super::record::{Record, Streams};
use crate::state::Settings;

/// The name by which settings are found among all descriptors.
pub(super) const SETTINGS_NAME: &CStr = c"aenv-settings";
/// Far above what `/init` accepts.
const SETTINGS_BYTES_MAX: usize = 8 << 20;

/// Where the daemon keeps what must outlive it.
#[derive(Debug, Default)]
pub(crate) struct Store {
    is_kept: bool,
    settings: Mutex<Newest>,
}

#[derive(Debug, Default)]
struct Newest {
    generation: u64,
    _file: Option<File>,
}

/// Settings as they are written. Of two versions, which a death in the middle of a change leaves, the newer counts.
#[derive(Serialize, Deserialize)]
struct Version<S> {
    generation: u64,
    settings: S,
}

impl Store {
    /// A store that a keeper guards.
    pub(super) fn kept() -> Self {
        Self { is_kept: true, ..Self::default() }
    }

    /// Writes down a process. `None` where nobody would read it.
    pub(crate) fn write_process(
        &self,
        pid: u32,
        streams: Streams,
        describe: impl FnOnce() -> Vec<u8>,
    ) -> io::Result<Option<Record>> {
        self.is_kept.then(|| Record::create(pid, streams, &describe())).transpose()
    }

    /// Replaces the settings. Whatever happens meanwhile, one whole version is there.
    pub(crate) fn write_settings(&self, settings: &Settings) -> io::Result<()> {
        if !self.is_kept {
            return Ok(());
        }
        let mut newest = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = newest.generation + 1;
        let file = File::from(memfd_create(SETTINGS_NAME, MFdFlags::MFD_CLOEXEC)?);
        file.write_all_at(&serde_json::to_vec(&Version { generation, settings })?, 0)?;
        *newest = Newest { generation, _file: Some(file) };
        Ok(())
    }

    /// Takes over the settings that the daemon before has left.
    pub(super) fn resume_settings(&self, files: Vec<OwnedFd>) -> Option<Settings> {
        let versions = files.into_iter().filter_map(|file| read_version(file.into()));
        let (version, file) = versions.max_by_key(|(version, _)| version.generation)?;
        let newest = Newest { generation: version.generation, _file: Some(file) };
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = newest;
        Some(version.settings)
    }
}

/// A version that was cut off by a death does not parse.
fn read_version(file: File) -> Option<(Version<Settings>, File)> {
    let size = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let mut content = vec![0; size.min(SETTINGS_BYTES_MAX)];
    file.read_exact_at(&mut content, 0).ok()?;
    Some((serde_json::from_slice(&content).ok()?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(token: &str) -> Settings {
        Settings {
            access_token: Some(token.to_owned()),
            newest_timestamp: Some(1_790_000_000_123_456_789),
            ..Settings::default()
        }
    }

    #[test]
    fn the_newest_whole_settings_come_back() {
        let store = Store::kept();
        let mut files = Vec::new();
        for token in ["old", "new"] {
            store.write_settings(&settings(token)).expect("memory");
            let file = store.settings.lock().expect("not poisoned")._file.as_ref().map(File::try_clone);
            files.push(file.expect("written").expect("a handle").into());
        }
        let torn = File::from(memfd_create(SETTINGS_NAME, MFdFlags::MFD_CLOEXEC).expect("memory"));
        torn.write_all_at(br#"{"generation":9,"sett"#, 0).expect("memory");
        files.push(torn.into());
        let resumed = Store::kept().resume_settings(files).expect("settings");
        assert_eq!(resumed.access_token.as_deref(), Some("new"));
        assert_eq!(resumed.newest_timestamp, settings("new").newest_timestamp);
    }

    #[test]
    fn without_a_keeper_nothing_is_written() {
        let store = Store::default();
        store.write_settings(&settings("x")).expect("nothing to fail");
        assert!(store.settings.lock().expect("not poisoned")._file.is_none());
        let streams = Streams { pidfd: 1, input: None, stdout: None, stderr: None, terminal: None };
        assert!(store.write_process(1, streams, || panic!("not asked")).expect("nothing to fail").is_none());
    }
}
