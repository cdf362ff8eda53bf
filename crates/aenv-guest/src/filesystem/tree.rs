//! Removes a tree without following a link and without recursion: neither its depth nor a race can lead us astray.
//! Blocking.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{openat, renameat, OFlag, AT_FDCWD};
use nix::sys::stat::Mode;
use nix::unistd::{unlinkat, UnlinkatFlags};

/// Directories that are open at once. What lies deeper is moved up to the top of the tree, and found there later.
const DEPTH_MAX: usize = 64;
/// Names read ahead per directory.
const BATCH_NAMES_MAX: usize = 256;
/// How often a directory may turn out not to be empty after all before somebody must be filling it.
const ATTEMPTS_MAX: usize = 16;

/// A directory being emptied.
struct Level {
    name: CString,
    directory: OwnedFd,
    batch: Vec<CString>,
    attempts: usize,
}

/// Removes what a path names, with everything below it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    match unlinkat(AT_FDCWD, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => Removal { levels: vec![Level::open(AT_FDCWD, name)?], moved: 0 }.run(),
        outcome => Ok(outcome?),
    }
}

struct Removal {
    levels: Vec<Level>,
    moved: u64,
}

impl Removal {
    fn run(mut self) -> io::Result<()> {
        while let Some(level) = self.levels.last_mut() {
            match level.next_child()? {
                Some(child) => self.remove_child(child)?,
                None => self.leave()?,
            }
        }
        Ok(())
    }

    fn remove_child(&mut self, child: CString) -> io::Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        match unlinkat(&level.directory, child.as_c_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EISDIR) => self.enter(child),
            Err(error) => Err(error.into()),
        }
    }

    fn enter(&mut self, child: CString) -> io::Result<()> {
        if self.levels.len() == DEPTH_MAX {
            return self.move_up(&child);
        }
        let Some(level) = self.levels.last() else { return Ok(()) };
        // An empty directory, the most frequent kind, needs no stream.
        match unlinkat(&level.directory, child.as_c_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(_) => {}
        }
        match Level::open(level.directory.as_fd(), child) {
            Ok(level) => self.levels.push(level),
            // It became something else, or nothing: the next batch will tell.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn move_up(&mut self, child: &CStr) -> io::Result<()> {
        let (Some(top), Some(level)) = (self.levels.first(), self.levels.last()) else { return Ok(()) };
        loop {
            self.moved += 1;
            let name = CString::new(format!(".aenv-removed-{}", self.moved))?;
            match renameat(&level.directory, child, &top.directory, name.as_c_str()) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                // Somebody uses the name; the next one will be free.
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes the directory that has just been emptied.
    fn leave(&mut self) -> io::Result<()> {
        let Some(mut done) = self.levels.pop() else { return Ok(()) };
        let parent = self.levels.last().map_or(AT_FDCWD, |parent| parent.directory.as_fd());
        match unlinkat(parent, done.name.as_c_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(Errno::ENOTEMPTY) if done.attempts < ATTEMPTS_MAX => {
                done.attempts += 1;
                self.levels.push(done);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: CString) -> io::Result<Self> {
        let directory = open_directory(parent, &name)?;
        Ok(Self { name, directory, batch: Vec::new(), attempts: 0 })
    }

    /// The next name in the directory; `None` when it looks empty.
    fn next_child(&mut self) -> io::Result<Option<CString>> {
        if self.batch.is_empty() {
            self.batch = self.read_batch()?;
        }
        Ok(self.batch.pop())
    }

    /// Reads from the start: what was there before has been removed.
    fn read_batch(&self) -> io::Result<Vec<CString>> {
        let mut batch = Vec::new();
        let mut stream = Dir::from_fd(open_directory(self.directory.as_fd(), c".")?)?;
        for entry in stream.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                batch.push(name.to_owned());
            }
            if batch.len() == BATCH_NAMES_MAX {
                break;
            }
        }
        Ok(batch)
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::mkdirat;

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().join("top");
        std::fs::create_dir(&top).expect("made");
        let mut deepest: OwnedFd = std::fs::File::open(&top).expect("opened").into();
        for _ in 0..3_000 {
            mkdirat(&deepest, c"d", Mode::S_IRWXU).expect("made");
            openat(&deepest, c"file", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU).expect("created");
            deepest = open_directory(deepest.as_fd(), c"d").expect("opened");
        }
        remove(&top).expect("removed");
        assert!(!top.exists());
    }

    #[test]
    fn many_files_are_removed_in_batches() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().join("top");
        std::fs::create_dir(&top).expect("made");
        for number in 0..1_000 {
            std::fs::write(top.join(number.to_string()), "").expect("written");
        }
        remove(&top).expect("removed");
        assert!(!top.exists());
        assert_eq!(remove(&top).expect_err("gone").kind(), io::ErrorKind::NotFound);
    }
}
