//! Lists a directory to a depth. Blocking. Walks with a stack of its own: the depth of a hostile tree is not ours.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::vec;

use super::entry::{Entry, EntryType};
use super::errors;
use super::owners::Owners;
use crate::connect::{Code, ConnectError};

/// An answer is one message, held in memory. Some 30 MiB at worst; who has more files lists smaller parts.
const ENTRIES_MAX: usize = 100_000;

/// One directory being listed: its path, and the names still to visit, sorted.
struct Level {
    path: PathBuf,
    names: vec::IntoIter<OsString>,
}

/// The entries below `root`, each directory's in lexical order, a directory before what is in it.
///
/// A link at the root is followed, links below are not. Whatever vanishes meanwhile is left out.
pub(super) fn list(root: &Path, depth: usize) -> Result<Vec<Entry>, ConnectError> {
    check_root(root)?;
    let mut entries = Vec::new();
    let mut owners = Owners::default();
    let mut budget = ENTRIES_MAX;
    let mut levels = vec![read_level(root, &mut budget).map_err(|error| listing_error(&error, root))?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(name);
        let Ok(entry) = Entry::read(&path, &mut owners) else { continue };
        let is_directory = entry.entry_type == EntryType::Directory && !entry.is_symlink;
        entries.push(entry);
        if is_directory && levels.len() < depth {
            match read_level(&path, &mut budget) {
                Ok(level) => levels.push(level),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(listing_error(&error, &path)),
            }
        }
    }
    Ok(entries)
}

fn check_root(root: &Path) -> Result<(), ConnectError> {
    let metadata = std::fs::metadata(root).map_err(|error| errors::from_io(&error, root))?;
    if metadata.is_dir() {
        Ok(())
    } else {
        Err(errors::not_a_directory(root))
    }
}

/// Reads the names of one directory; each costs one of the budget, so that no directory is too big for memory.
fn read_level(path: &Path, budget: &mut usize) -> io::Result<Level> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        *budget = budget.checked_sub(1).ok_or(io::ErrorKind::QuotaExceeded)?;
        names.push(entry?.file_name());
    }
    names.sort_unstable();
    Ok(Level { path: path.to_owned(), names: names.into_iter() })
}

fn listing_error(error: &io::Error, path: &Path) -> ConnectError {
    match error.kind() {
        io::ErrorKind::QuotaExceeded if error.raw_os_error().is_none() => ConnectError::new(
            Code::ResourceExhausted,
            format!("listing has more than {ENTRIES_MAX} entries; list a smaller directory or less depth"),
        ),
        _ => errors::from_io(error, path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for path in ["b/inner/deep", "a", "B"] {
            std::fs::create_dir_all(directory.path().join(path)).expect("created");
        }
        for path in ["b/z", "b/inner/y", "b.txt", "a.txt"] {
            std::fs::write(directory.path().join(path), "x").expect("written");
        }
        directory
    }

    fn names(root: &Path, depth: usize) -> Vec<String> {
        let entries = list(root, depth).expect("listed");
        let relative =
            |entry: Entry| Path::new(&entry.path).strip_prefix(root).expect("below").display().to_string();
        entries.into_iter().map(relative).collect()
    }

    #[test]
    fn order_is_depth_first_and_lexical() {
        let tree = tree();
        assert_eq!(names(tree.path(), 1), ["B", "a", "a.txt", "b", "b.txt"]);
        assert_eq!(names(tree.path(), 2), ["B", "a", "a.txt", "b", "b/inner", "b/z", "b.txt"]);
        let all = ["B", "a", "a.txt", "b", "b/inner", "b/inner/deep", "b/inner/y", "b/z", "b.txt"];
        assert_eq!(names(tree.path(), usize::MAX), all);
    }

    #[test]
    fn only_the_root_link_is_followed() {
        let tree = tree();
        let link = tree.path().join("a/link");
        symlink(tree.path().join("b"), &link).expect("a link");
        assert_eq!(names(&link, 1), ["inner", "z"]);
        let below_a = list(&tree.path().join("a"), 5).expect("listed");
        assert_eq!(below_a.len(), 1, "a link to a directory is shown, not entered");
        assert_eq!(below_a[0].entry_type, EntryType::Directory);
    }

    #[test]
    fn roots_that_cannot_be_listed_say_why() {
        let tree = tree();
        let endless = tree.path().join("endless");
        symlink(&endless, &endless).expect("a link");
        for (path, code) in [
            (tree.path().join("missing"), Code::NotFound),
            (tree.path().join("a.txt"), Code::InvalidArgument),
            (endless, Code::FailedPrecondition),
        ] {
            assert_eq!(list(&path, 1).expect_err("refused").code, code, "{path:?}");
        }
    }

    #[test]
    fn a_huge_directory_is_refused_not_held() {
        let tree = tree();
        let error = read_level(tree.path(), &mut 2).err().expect("over budget");
        assert_eq!(listing_error(&error, tree.path()).code, Code::ResourceExhausted);
    }
}
