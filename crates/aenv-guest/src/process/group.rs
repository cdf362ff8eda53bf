//! A cgroup for each process, where the guest has cgroup v2: the only way to name a tree that nobody can leave.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
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

impl Groups {
    /// Groups below `parent`.
    pub(super) fn below(parent: Option<PathBuf>) -> Self {
        Self { parent, ..Self::default() }
    }

    /// A new group and the file through which a child enters it by writing `0`. `None` where there are no cgroups:
    /// processes then run without, and their tree is found by descent.
    pub(super) fn create(&self) -> Option<(Group, OwnedFd)> {
        let parent = self.parent.as_deref()?;
        sweep(&self.leftovers);
        let directory = parent.join(self.next_name());
        fs::create_dir_all(&directory).ok()?;
        let group = Group { directory, leftovers: Arc::clone(&self.leftovers) };
        let entrance = fs::OpenOptions::new().write(true).open(group.directory.join("cgroup.procs")).ok()?;
        Some((group, entrance.into()))
    }

    /// A restarted daemon must not meet the groups of its predecessor: the daemon's pid is part of the name.
    fn next_name(&self) -> String {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made += 1;
        format!("{}-{made}", std::process::id())
    }
}

impl Group {
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
