//! A cgroup for each process, where the guest has cgroup v2: the only way to name a tree that nobody can leave.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Old groups looked at when a new one is made.
const SWEPT_AT_ONCE_MAX: usize = 64;
/// Empty groups kept for the next processes: making one is among the slowest things the kernel does for a start.
const READY_MAX: usize = 16;
/// What the kernel says of a group that nobody is in, and that would let a newcomer run.
const EMPTY: &str = "populated 0\nfrozen 0\n";

/// Makes groups below one directory; without a directory it makes none.
#[derive(Debug, Default)]
pub(super) struct Groups {
    parent: Option<PathBuf>,
    spares: Arc<Mutex<Spares>>,
}

/// Groups that belong to no process of ours.
#[derive(Debug, Default)]
struct Spares {
    made: u64,
    ready: Vec<Place>,
    /// Their last process had not gone when they were given up.
    leftovers: Vec<PathBuf>,
}

/// A group's directory, open: a process is started in it by this descriptor.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    descriptor: OwnedFd,
}

/// The group of one process and its descendants. It serves again when the last of them has gone.
#[derive(Debug)]
pub(super) struct Group {
    place: Option<Place>,
    spares: Arc<Mutex<Spares>>,
}

impl Groups {
    /// Groups below `parent`.
    pub(super) fn below(parent: Option<PathBuf>) -> Self {
        if let Some(parent) = &parent {
            // Where this fails, so will each group, and processes run without.
            let _ = fs::create_dir_all(parent);
        }
        Self { parent, ..Self::default() }
    }

    /// A group with nobody in it. `None` where there are no cgroups: processes then run without, and their tree is
    /// found by descent.
    pub(super) fn take(&self) -> Option<Group> {
        let parent = self.parent.as_deref()?;
        let mut spares = self.lock();
        spares.sweep();
        // Whoever is root in the guest may have gone into it, or frozen it, meanwhile.
        while let Some(place) = spares.ready.pop() {
            if place.is_empty() {
                return Some(self.group(place));
            }
            spares.leftovers.push(place.path);
        }
        let place = spares.make(parent)?;
        Some(self.group(place))
    }

    /// Makes a group before it is needed.
    pub(super) fn prepare(&self) {
        drop(self.take());
    }

    /// The group of a process that another daemon started.
    pub(super) fn resume(&self, name: &str) -> Option<Group> {
        let path = self.parent.as_deref()?.join(name);
        let is_below = !matches!(name, "" | "." | "..") && !name.contains('/');
        Place::open(path).filter(|_| is_below).map(|place| self.group(place))
    }

    /// Takes charge of groups that nobody owns: their processes' streams have ended, or their daemon died.
    pub(super) fn take_leftovers(&self, owned: &BTreeSet<String>) {
        let Some(parent) = &self.parent else { return };
        let groups = fs::read_dir(parent).into_iter().flatten().flatten();
        let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_owned = |entry: &fs::DirEntry| owned.contains(&*entry.file_name().to_string_lossy());
        let orphaned = groups.filter(|entry| is_group(entry) && !is_owned(entry)).map(|entry| entry.path());
        self.lock().leftovers.extend(orphaned);
    }

    fn group(&self, place: Place) -> Group {
        Group { place: Some(place), spares: Arc::clone(&self.spares) }
    }

    fn lock(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spares {
    fn make(&mut self, parent: &Path) -> Option<Place> {
        self.made += 1;
        // A restarted daemon must not meet the groups of its predecessor: the daemon's pid is part of the name.
        let path = parent.join(format!("{}-{}", std::process::id(), self.made));
        // One that exists already belongs to somebody.
        fs::create_dir(&path).ok()?;
        Place::open(path)
    }

    /// Removes groups that have become empty. Those that have not go to the back, so that each gets its turn.
    fn sweep(&mut self) {
        let count = self.leftovers.len().min(SWEPT_AT_ONCE_MAX);
        let oldest: Vec<PathBuf> = self.leftovers.drain(..count).collect();
        self.leftovers.extend(oldest.into_iter().filter(|path| is_busy(path)));
    }

    fn give_back(&mut self, place: Place) {
        if self.ready.len() < READY_MAX && place.is_empty() {
            self.ready.push(place);
        } else if is_busy(&place.path) {
            self.leftovers.push(place.path);
        }
    }
}

impl Place {
    fn open(path: PathBuf) -> Option<Self> {
        let descriptor = fs::File::open(&path).ok()?.into();
        Some(Self { path, descriptor })
    }

    fn is_empty(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events")).is_ok_and(|events| events == EMPTY)
    }
}

impl Group {
    /// By which the next daemon finds it.
    pub(super) fn name(&self) -> String {
        let name = self.place.as_ref().and_then(|place| place.path.file_name());
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Kills everything in the group.
    pub(super) fn kill(&self) -> io::Result<()> {
        let place = self.place.as_ref().ok_or(io::ErrorKind::NotFound)?;
        fs::write(place.path.join("cgroup.kill"), "1")
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.as_ref().expect("only dropping takes the place away").descriptor.as_fd()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.spares.lock().unwrap_or_else(PoisonError::into_inner).give_back(place);
        }
    }
}

/// Removes the directory unless somebody lives in it.
fn is_busy(directory: &Path) -> bool {
    matches!(fs::remove_dir(directory), Err(error) if error.raw_os_error() == Some(libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary directory can play a group: the kernel's files in it are ours to write.
    fn play_group(group: &Group, events: &str) {
        let path = &group.place.as_ref().expect("a place").path;
        fs::write(path.join("cgroup.events"), events).expect("written");
    }

    #[test]
    fn an_empty_group_serves_again_and_a_full_one_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let groups = Groups::below(Some(directory.path().join("groups")));
        let first = groups.take().expect("a group");
        let name = first.name();
        play_group(&first, EMPTY);
        drop(first);
        let second = groups.take().expect("a group");
        assert_eq!(second.name(), name);
        for events in ["populated 1\nfrozen 0\n", "populated 0\nfrozen 1\n"] {
            let group = groups.take().expect("a group");
            play_group(&group, events);
            let busy = group.name();
            drop(group);
            assert_ne!(groups.take().expect("a group").name(), busy);
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let groups = Groups::below(Some(directory.path().join("groups")));
        fs::create_dir_all(directory.path().join("groups/1-1")).expect("made");
        assert_eq!(groups.resume("1-1").map(|group| group.name()).as_deref(), Some("1-1"));
        for name in ["", "..", "../groups", "1-2"] {
            assert!(groups.resume(name).is_none(), "{name}");
        }
    }
}
