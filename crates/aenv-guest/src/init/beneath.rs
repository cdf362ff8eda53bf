//! Writes into the user's image after the switch: inside the new root no link leads out of it, and files are replaced
//! whole, never written through a link.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes a directory, with its parents, unless it is there. Minimal images lack many.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).recursive(true).create(path) {
        // A directory behind a link is good enough to mount on.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Puts a file in place of whatever has its name: another file, or a link that leads nowhere. A file that says the same
/// already is left alone: the first write to a disk costs boot time.
pub(super) fn replace_file(path: &Path, content: &str) -> io::Result<()> {
    if is_plain_file_with(path, content) {
        return Ok(());
    }
    let beside = path_beside(path);
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
    let outcome = file.write_all(content.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if outcome.is_err() {
        let _ = fs::remove_file(&beside);
    }
    outcome
}

fn is_plain_file_with(path: &Path, content: &str) -> bool {
    let has_size = |metadata: fs::Metadata| metadata.is_file() && metadata.len() == content.len() as u64;
    fs::symlink_metadata(path).is_ok_and(has_size)
        && fs::read(path).is_ok_and(|found| found == content.as_bytes())
}

fn path_beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".aenv-new");
    beside.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_does_not_follow_links() {
        let directory = tempfile::tempdir().expect("a directory");
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "untouched").expect("written");
        std::os::unix::fs::symlink(&victim, &link).expect("linked");
        let dangling = directory.path().join("dangling");
        std::os::unix::fs::symlink("/not/there", &dangling).expect("linked");
        for path in [&link, &dangling] {
            replace_file(path, "new").expect("replaced");
            assert_eq!(fs::read_to_string(path).expect("read"), "new");
            assert!(!fs::symlink_metadata(path).expect("there").is_symlink());
        }
        assert_eq!(fs::read_to_string(victim).expect("read"), "untouched");
    }

    #[test]
    fn equal_content_is_left_alone() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        replace_file(&path, "same").expect("written");
        let before = fs::metadata(&path).expect("there").ino();
        replace_file(&path, "same").expect("kept");
        assert_eq!(fs::metadata(&path).expect("there").ino(), before);
        replace_file(&path, "diff").expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("read"), "diff");
    }

    #[test]
    fn making_a_directory_accepts_one_behind_a_link() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("real")).expect("made");
        std::os::unix::fs::symlink("real", directory.path().join("link")).expect("linked");
        std::os::unix::fs::symlink("nowhere", directory.path().join("dangling")).expect("linked");
        make_directory(&directory.path().join("link")).expect("there");
        make_directory(&directory.path().join("new/deep")).expect("made");
        make_directory(&directory.path().join("dangling")).expect_err("leads nowhere");
    }
}
