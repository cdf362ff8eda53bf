//! Makes, moves and removes. Blocking.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::entry::Entry;
use super::errors;
use super::owners::Owners;
use super::tree;
use crate::connect::{Code, ConnectError};
use crate::files::open;
use crate::users::User;

/// Describes what a path names.
pub(super) fn stat(path: &Path) -> Result<Entry, ConnectError> {
    Entry::read(path, &mut Owners::default()).map_err(|error| errors::from_io(&error, path))
}

/// Creates a directory with its parents, owned by the user.
pub(super) fn make_directory(path: &Path, user: &User) -> Result<Entry, ConnectError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let message = format!("directory '{}' already exists", path.display());
            return Err(ConnectError::new(Code::AlreadyExists, message));
        }
        Ok(_) => return Err(errors::not_a_directory(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(errors::from_io(&error, path)),
    }
    create_directories(path, user)?;
    stat(path)
}

/// Moves a file or directory, creates the parents of the destination and replaces a file that is there.
pub(super) fn relocate(source: &Path, destination: &Path, user: &User) -> Result<Entry, ConnectError> {
    std::fs::symlink_metadata(source).map_err(|error| errors::from_io(&error, source))?;
    if let Some(parent) = destination.parent() {
        create_directories(parent, user)?;
    }
    match std::fs::rename(source, destination) {
        Ok(()) => stat(destination),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            let message = format!(
                "'{}' and '{}' are on different file systems; copy and remove instead",
                source.display(),
                destination.display()
            );
            Err(ConnectError::new(Code::FailedPrecondition, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(errors::missing(source)),
        Err(error) => Err(errors::from_io(&error, destination)),
    }
}

/// Removes whatever the path names, with all that is below it. A link is removed, not its target.
pub(super) fn remove(path: &Path) -> Result<(), ConnectError> {
    if path.as_os_str().as_bytes() == b"/" {
        return Err(ConnectError::invalid_argument("the root directory cannot be removed"));
    }
    match tree::remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|error| errors::from_io(&error, path)),
    }
}

fn create_directories(path: &Path, user: &User) -> Result<(), ConnectError> {
    open::create_directories(path, user).map_err(|(error, failed)| match error.raw_os_error() {
        // Something that is no directory has the name.
        Some(libc::EEXIST | libc::ENOTDIR) => errors::not_a_directory(&failed),
        _ => errors::from_io(&error, &failed),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn me() -> User {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        User { name: "me".into(), uid, gid, groups: vec![gid], home: "/".into(), shell: "/bin/sh".into() }
    }

    #[test]
    fn a_directory_is_made_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a/b");
        assert_eq!(make_directory(&path, &me()).expect("made").permissions, "drwxr-xr-x");
        assert_eq!(make_directory(&path, &me()).expect_err("there").code, Code::AlreadyExists);
        let file = path.join("file");
        std::fs::write(&file, "x").expect("written");
        assert_eq!(make_directory(&file, &me()).expect_err("a file").code, Code::InvalidArgument);
        assert_eq!(
            make_directory(&file.join("below"), &me()).expect_err("a file").code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn moving_replaces_files_and_makes_parents() {
        let directory = tempfile::tempdir().expect("a directory");
        let (source, destination) = (directory.path().join("source"), directory.path().join("new/place"));
        for text in ["one", "two"] {
            std::fs::write(&source, text).expect("written");
            let entry = relocate(&source, &destination, &me()).expect("moved");
            assert_eq!((entry.name.as_str(), entry.size), ("place", 3));
            assert_eq!(std::fs::read_to_string(&destination).expect("read"), text);
        }
        assert_eq!(relocate(&source, &destination, &me()).expect_err("gone").code, Code::NotFound);
        let inside = destination.join("inside");
        assert_eq!(
            relocate(&destination, &inside, &me()).expect_err("into itself").code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn removing_takes_the_link_and_leaves_its_target() {
        let directory = tempfile::tempdir().expect("a directory");
        let (kept, link) = (directory.path().join("kept"), directory.path().join("tree/link"));
        std::fs::create_dir_all(directory.path().join("tree/a/b")).expect("made");
        std::fs::create_dir(&kept).expect("made");
        std::fs::write(kept.join("file"), "x").expect("written");
        symlink(&kept, &link).expect("a link");
        for _ in 0..2 {
            remove(&directory.path().join("tree")).expect("removed, or not there");
        }
        assert!(kept.join("file").exists() && !directory.path().join("tree").exists());
        assert_eq!(remove(Path::new("/")).expect_err("refused").code, Code::InvalidArgument);
    }
}
