//! Opens files for requests without ever being caught by what the path may be: FIFOs, sockets, devices and directories
//! are refused. Symbolic links are followed, as the contract wants. Blocking; never call it on the async thread.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{fchown, lchown, DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::errors::FileError;
use crate::users::User;

/// Opening must not wait for a peer, not make a terminal ours, and not update what only a reader looked at.
const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
const NEW_FILE_MODE: u32 = 0o666;
const NEW_DIRECTORY_MODE: u32 = 0o755;
/// A name that appears and vanishes between our calls this often is somebody's game.
const CREATE_ATTEMPTS: usize = 8;

/// Opens a regular file for reading.
pub(crate) fn for_reading(path: &Path) -> Result<(File, Metadata), FileError> {
    // Merely opening a device can have effects, so the kind is looked at before and, since it may change, after.
    let found = std::fs::metadata(path).map_err(|error| FileError::from_io(&error, path))?;
    check_kind(&found, path)?;
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path);
    let file = file.map_err(|error| FileError::from_io(&error, path))?;
    let metadata = file.metadata().map_err(|error| FileError::from_io(&error, path))?;
    check_kind(&metadata, path)?;
    Ok((file, metadata))
}

/// Opens a regular file for writing from its start: an existing one is emptied, a new one and its missing parents
/// belong to the user.
pub(crate) fn for_writing(path: &Path, user: &User) -> Result<File, FileError> {
    if let Some(parent) = path.parent() {
        create_directories(parent, user).map_err(|(error, failed)| FileError::from_io(&error, &failed))?;
    }
    let file = open_or_create(path)?;
    let metadata = file.metadata().map_err(|error| FileError::from_io(&error, path))?;
    check_kind(&metadata, path)?;
    // An empty file needs no truncation, and watchers of a new file would see one event too many.
    if metadata.len() > 0 {
        file.set_len(0).map_err(|error| FileError::from_io(&error, path))?;
    }
    fchown(&file, Some(user.uid), Some(user.gid)).map_err(|error| FileError::from_io(&error, path))?;
    Ok(file)
}

/// Opens without `O_CREAT` first: where the kernel protects sticky directories, it refuses even root to "create" a
/// file that is there and belongs to another user, and `/tmp` is such a directory.
fn open_or_create(path: &Path) -> Result<File, FileError> {
    let mut last_error = FileError::NotFound(path.display().to_string());
    for _ in 0..CREATE_ATTEMPTS {
        let attempt = match std::fs::metadata(path) {
            Ok(found) => check_kind(&found, path).map(|()| open_existing(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(path),
            Err(error) => Err(error),
        };
        match attempt {
            Ok(file) => return Ok(file),
            // Somebody created or removed it between our calls.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                last_error = FileError::from_io(&error, path);
            }
            Err(error) => return Err(FileError::from_io(&error, path)),
        }
    }
    Err(last_error)
}

fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(FLAGS).open(path)
}

fn create(path: &Path) -> io::Result<File> {
    // A dangling link is there and not found at once; only then may the kernel follow it to create its target.
    let is_dangling_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let mut options = OpenOptions::new();
    options.write(true).mode(NEW_FILE_MODE).custom_flags(FLAGS);
    options.create(is_dangling_link).create_new(!is_dangling_link).open(path)
}

fn check_kind(metadata: &Metadata, path: &Path) -> Result<(), FileError> {
    if metadata.is_dir() {
        Err(FileError::directory(path))
    } else if metadata.is_file() {
        Ok(())
    } else {
        Err(FileError::special(path))
    }
}

/// Creates the missing directories of a path, owned by the user. On failure names the directory that failed.
pub(crate) fn create_directories(path: &Path, user: &User) -> Result<(), (io::Error, PathBuf)> {
    let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| !is_there(ancestor)).collect();
    for directory in missing.into_iter().rev() {
        create_directory(directory, user).map_err(|error| (error, directory.to_owned()))?;
    }
    Ok(())
}

/// Anything that is no directory will make the creation below it fail with the right error.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn create_directory(directory: &Path, user: &User) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(NEW_DIRECTORY_MODE).create(directory) {
        Ok(()) => lchown(directory, Some(user.uid), Some(user.gid)),
        // Somebody else created it meanwhile: then it is theirs.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{symlink, MetadataExt};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn me() -> User {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        User { name: "me".into(), uid, gid, groups: vec![gid], home: "/".into(), shell: "/bin/sh".into() }
    }

    fn fifo(path: &Path) {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    }

    #[test]
    fn special_files_are_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        fifo(&pipe);
        let socket = directory.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        for path in [pipe.as_path(), &socket, Path::new("/dev/null"), directory.path()] {
            assert!(matches!(for_reading(path), Err(FileError::Invalid(_))), "{path:?}");
            assert!(matches!(for_writing(path, &me()), Err(FileError::Invalid(_))), "{path:?}");
        }
    }

    #[test]
    fn writing_follows_links_also_dangling_ones() {
        let directory = tempfile::tempdir().expect("a directory");
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        symlink(&target, &link).expect("a link");
        for text in ["first", "next"] {
            for_writing(&link, &me()).expect("opened").write_all(text.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(&target).expect("read"), text);
        }
        assert!(link.symlink_metadata().expect("there").is_symlink());
    }

    #[test]
    fn missing_parents_are_created_with_their_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a/b/c.txt");
        for_writing(&path, &me()).expect("opened");
        let mode = |path: &Path| path.metadata().expect("there").mode() & 0o7777;
        assert_eq!((mode(&directory.path().join("a/b")), mode(&path)), (0o755, 0o644));
    }

    #[test]
    fn a_file_in_the_way_is_the_callers_mistake() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "x").expect("written");
        assert!(matches!(for_writing(&file.join("below"), &me()), Err(FileError::Invalid(_))));
        let endless = directory.path().join("endless");
        symlink(&endless, &endless).expect("a link");
        assert!(matches!(for_writing(&endless, &me()), Err(FileError::Invalid(_))));
        assert!(matches!(for_reading(&endless), Err(FileError::Invalid(_))));
        assert!(matches!(for_reading(Path::new("/nowhere/at/all")), Err(FileError::NotFound(_))));
    }
}
