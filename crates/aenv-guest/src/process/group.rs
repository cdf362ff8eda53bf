//! A cgroup for each process, where the guest has cgroup v2: the only way to name a tree that nobody can leave.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Old groups looked at when a new one is made.
const SWEPT_AT_ONCE_MAX: usize = 64;

/// Directories whose last process had not gone when their group was given up.
type Leftovers = Arc<Mutex<Vec<PathBuf>>>;

/// Makes groups below one directory; without a directory it makes none.
#[derive(Debug, Default)]
pub(super) struct Groups {
    parent: Option<PathBuf>,
    leftovers: Leftovers,
    made: Mutex<u64>,
}

/// The group of one process and its descendants. Its directory goes when the last of them has gone.
#[derive(Debug)]
pub(super) struct Group {
    directory: PathBuf,
    leftovers: Leftovers,
}

/// What a process is started in.
#[derive(Debug)]
pub(super) struct Entrance(OwnedFd);

impl AsFd for Entrance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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

    /// A new group and the way into it. `None` where there are no cgroups: processes then run without, and their tree
    /// is found by descent.
    pub(super) fn create(&self) -> Option<(Group, Entrance)> {
        let parent = self.parent.as_deref()?;
        sweep(&self.leftovers);
        let directory = parent.join(self.next_name());
        // One that exists already belongs to somebody.
        fs::create_dir(&directory).ok()?;
        let group = Group { directory, leftovers: Arc::clone(&self.leftovers) };
        let entrance = fs::File::open(&group.directory).ok()?;
        Some((group, Entrance(entrance.into())))
    }

    /// The group of a process that another daemon started.
    pub(super) fn resume(&self, name: &str) -> Option<Group> {
        let directory = self.parent.as_deref()?.join(name);
        let is_below = !name.is_empty() && !name.contains('/') && directory.is_dir();
        is_below.then(|| Group { directory, leftovers: Arc::clone(&self.leftovers) })
    }

    /// Takes charge of groups that nobody owns: their processes' streams have ended, or their daemon died.
    pub(super) fn take_leftovers(&self, owned: &BTreeSet<String>) {
        let Some(parent) = &self.parent else { return };
        let groups = fs::read_dir(parent).into_iter().flatten().flatten();
        let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_owned = |entry: &fs::DirEntry| owned.contains(&*entry.file_name().to_string_lossy());
        let orphaned = groups.filter(|entry| is_group(entry) && !is_owned(entry)).map(|entry| entry.path());
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        leftovers.extend(orphaned);
    }

    /// A restarted daemon must not meet the groups of its predecessor: the daemon's pid is part of the name.
    fn next_name(&self) -> String {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made += 1;
        format!("{}-{made}", std::process::id())
    }
}

impl Group {
    /// By which the next daemon finds it.
    pub(super) fn name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Kills everything in the group.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.kill"), "1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if is_busy(&self.directory) {
            self.leftovers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(std::mem::take(&mut self.directory));
        }
    }
}

/// Removes the directory unless somebody lives in it.
fn is_busy(directory: &Path) -> bool {
    matches!(fs::remove_dir(directory), Err(error) if error.raw_os_error() == Some(libc::EBUSY))
}

fn sweep(leftovers: &Leftovers) {
    let mut leftovers = leftovers.lock().unwrap_or_else(PoisonError::into_inner);
    let count = leftovers.len().min(SWEPT_AT_ONCE_MAX);
    let oldest: Vec<PathBuf> = leftovers.drain(..count).collect();
    // Those still busy go to the back, so that each gets its turn.
    leftovers.extend(oldest.into_iter().filter(|directory| is_busy(directory)));
}
