//! Metadata on disk: extended attributes `user.e2b.<key>`. A file system without them has no metadata, which is no error.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::files::metadata::Metadata;

const PREFIX: &str = "user.e2b.";
/// The kernel never lists more.
const LIST_BYTES_MAX: usize = 64 << 10;
/// The workload can set attributes too; a value longer than any upload's is not metadata.
const VALUE_BYTES_MAX: usize = 4096;
/// What one entry may carry in an answer.
const TOTAL_BYTES_MAX: usize = 16 << 10;

/// Reads the metadata of what the path names, following links. Unreadable and oversized values are left out.
pub(crate) fn read(path: &Path) -> Metadata {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Metadata::new() };
    let mut metadata = Metadata::new();
    let mut total = 0;
    for name in names_of_path(&path).unwrap_or_default() {
        let (Ok(key), Ok(value)) = (key_of(&name), value_of_path(&path, &name)) else { continue };
        total += key.len() + value.len();
        if total > TOTAL_BYTES_MAX {
            break;
        }
        metadata.insert(key, value);
    }
    metadata
}

/// Replaces all metadata of an open file.
pub(crate) fn replace(file: &File, metadata: &Metadata) -> io::Result<()> {
    let old_names = match names_of_file(file) {
        Ok(names) => names,
        Err(error) if is_unsupported(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in old_names.iter().filter(|name| !key_of(name).is_ok_and(|key| metadata.contains_key(&key))) {
        remove(file, name)?;
    }
    for (key, value) in metadata {
        match set(file, &attribute_name(key)?, value.as_bytes()) {
            Err(error) if is_unsupported(&error) => return Ok(()),
            outcome => outcome?,
        }
    }
    Ok(())
}

fn attribute_name(key: &str) -> io::Result<CString> {
    CString::new(format!("{PREFIX}{key}")).map_err(io::Error::from)
}

fn key_of(name: &CStr) -> io::Result<String> {
    let name = name.to_str().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(name.strip_prefix(PREFIX).unwrap_or(name).to_owned())
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

fn names_of_path(path: &CStr) -> io::Result<Vec<CString>> {
    // SAFETY: the path is NUL-terminated, and the kernel writes at most `length` bytes to `buffer`.
    list(|buffer, length| unsafe { libc::listxattr(path.as_ptr(), buffer, length) })
}

fn names_of_file(file: &File) -> io::Result<Vec<CString>> {
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes to `buffer`.
    list(|buffer, length| unsafe { libc::flistxattr(file.as_raw_fd(), buffer, length) })
}

/// Most files have no attribute: their list is asked for its length first, and nothing is allocated.
fn list(call: impl Fn(*mut libc::c_char, usize) -> isize) -> io::Result<Vec<CString>> {
    let length = checked(call(std::ptr::null_mut(), 0))?;
    if length == 0 {
        return Ok(Vec::new());
    }
    // Somebody may add one between the two calls.
    let mut buffer = vec![0_u8; (length + 1024).min(LIST_BYTES_MAX)];
    let length = checked(call(buffer.as_mut_ptr().cast(), buffer.len()))?;
    buffer.truncate(length);
    let names = buffer.split(|byte| *byte == 0).filter(|name| name.starts_with(PREFIX.as_bytes()));
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn value_of_path(path: &CStr, name: &CStr) -> io::Result<String> {
    let mut buffer = [0_u8; VALUE_BYTES_MAX];
    // SAFETY: both strings are NUL-terminated, and the kernel writes at most `buffer.len()` bytes to `buffer`.
    let length = checked(unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    })?;
    let value = std::str::from_utf8(&buffer[..length]);
    value.map(str::to_owned).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn set(file: &File, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated, and the kernel reads `value.len()` bytes from `value`.
    let outcome =
        unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    checked(outcome as isize).map(drop)
}

fn remove(file: &File, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated and the descriptor is open.
    let outcome = unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) };
    match checked(outcome as isize) {
        // The workload was faster.
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn checked(outcome: isize) -> io::Result<usize> {
    usize::try_from(outcome).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&str, &str)]) -> Metadata {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_new_set_replaces_the_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = File::create(&path).expect("a file");
        replace(&file, &metadata(&[("a", "1"), ("b", "2")])).expect("stored");
        assert_eq!(read(&path), metadata(&[("a", "1"), ("b", "2")]));
        replace(&file, &metadata(&[("b", "3")])).expect("stored");
        assert_eq!(read(&path), metadata(&[("b", "3")]));
        replace(&file, &Metadata::new()).expect("cleared");
        assert_eq!(read(&path), Metadata::new());
    }

    #[test]
    fn foreign_and_oversized_attributes_are_not_metadata() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = File::create(&path).expect("a file");
        set(&file, c"user.other", b"x").expect("set");
        set(&file, c"user.e2b.binary", b"\xff\xfe").expect("set");
        set(&file, c"user.e2b.fine", b"yes").expect("set");
        assert_eq!(read(&path), metadata(&[("fine", "yes")]));
        replace(&file, &Metadata::new()).expect("cleared");
        assert_eq!(names_of_file(&file).expect("listed"), Vec::<CString>::new());
    }

    #[test]
    fn a_missing_file_has_no_metadata() {
        assert!(read(Path::new("/nowhere/at/all")).is_empty());
        assert!(read(Path::new("/a\0b")).is_empty());
    }
}
