//! Sorts the descriptors that a daemon left: what its successor needs stays, everything else is closed.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use super::record::{self, Record};
use super::store;

/// What a daemon left to its successor. Dropping it closes it.
#[derive(Debug, Default)]
pub(super) struct Estate {
    /// Processes that run, or whose output is not delivered.
    pub(super) records: Vec<Record>,
    /// Versions of the settings: one, or two after a death in the middle of a change.
    pub(super) settings: Vec<OwnedFd>,
}

/// All open descriptors.
pub(super) fn open_descriptors() -> BTreeSet<RawFd> {
    let numbers = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let listed: BTreeSet<RawFd> = entries.filter_map(numbers).collect();
    // The directory itself was open while it was listed.
    listed.into_iter().filter(|number| fs::read_link(path_of(*number)).is_ok()).collect()
}

/// Closes what the daemon had, except for its estate. `ours` are the descriptors that were never its own.
pub(super) fn sort(ours: &BTreeSet<RawFd>) -> Estate {
    let left: BTreeSet<RawFd> = open_descriptors().difference(ours).copied().collect();
    let mut estate = Estate::default();
    for number in &left {
        let target = fs::read_link(path_of(*number)).unwrap_or_default();
        // SAFETY: whoever owned these numbers is dead, and we are its only heir: each is wrapped once.
        let adopt = || unsafe { OwnedFd::from_raw_fd(*number) };
        if is_memory_file(&target, record::NAME) {
            estate.records.push(Record::from_descriptor(adopt()));
        } else if is_memory_file(&target, store::SETTINGS_NAME) {
            estate.settings.push(adopt());
        }
    }
    // What is not whole belongs to a start that nobody has been told of; dropping it closes it.
    estate.records.retain(|record| record.head().is_some());
    let mut kept: BTreeSet<RawFd> = estate.settings.iter().map(AsRawFd::as_raw_fd).collect();
    for record in &estate.records {
        kept.insert(record.number());
        kept.extend(record.head().into_iter().flat_map(|head| head.streams.numbers()));
    }
    for number in left.difference(&kept) {
        // SAFETY: as above; those that were dropped already report an error, which changes nothing.
        unsafe { libc::close(*number) };
    }
    estate
}

fn is_memory_file(target: &Path, name: &CStr) -> bool {
    target.to_str().is_some_and(|target| target == format!("/memfd:{} (deleted)", name.to_string_lossy()))
}

fn path_of(number: RawFd) -> String {
    format!("/proc/self/fd/{number}")
}
