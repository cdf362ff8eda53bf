//! What the contract tells about a path: `EntryInfo`. Blocking: asks the file system, never follows the last link except
//! to learn what it points at.

use std::fs::Metadata as FileMetadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::owners::Owners;
use super::{attributes, mode, timestamp};
use crate::files::metadata::Metadata;

/// What kind of thing a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum EntryType {
    /// A broken link, FIFO, socket or device.
    #[serde(rename = "FILE_TYPE_UNSPECIFIED")]
    Unspecified,
    /// A regular file.
    #[serde(rename = "FILE_TYPE_FILE")]
    File,
    /// A directory.
    #[serde(rename = "FILE_TYPE_DIRECTORY")]
    Directory,
}

impl EntryType {
    fn of(metadata: &FileMetadata) -> Self {
        if metadata.is_file() {
            Self::File
        } else if metadata.is_dir() {
            Self::Directory
        } else {
            Self::Unspecified
        }
    }
}

/// One entry of an answer, in the form of the wire.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Last component of the path.
    pub(crate) name: String,
    /// Kind of the thing; of a link, kind of its target.
    #[serde(rename = "type")]
    pub(crate) entry_type: EntryType,
    /// The path as it was asked for, absolute.
    pub(crate) path: String,
    /// Size in bytes; of a link, its own.
    #[serde(serialize_with = "as_text")]
    pub(crate) size: u64,
    /// Permission bits; of a link, those of its target.
    pub(crate) mode: u32,
    /// Mode text of the thing itself.
    pub(crate) permissions: String,
    /// Owner's name or number.
    pub(crate) owner: String,
    /// Group's name or number.
    pub(crate) group: String,
    /// Last modification.
    pub(crate) modified_time: String,
    /// Where a link ends, or its own path when it ends nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) symlink_target: Option<String>,
    /// What uploads attached to it.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(crate) metadata: Metadata,
    /// Whether it is a link.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_symlink: bool,
}

impl Entry {
    /// Asks the file system about a path.
    pub(crate) fn read(path: &Path, owners: &mut Owners) -> io::Result<Self> {
        let own = std::fs::symlink_metadata(path)?;
        let target = own.is_symlink().then(|| Target::of(path));
        let (entry_type, mode) = match &target {
            None => (EntryType::of(&own), own.mode()),
            Some(target) => (target.entry_type, target.mode),
        };
        let has_metadata = entry_type != EntryType::Unspecified;
        Ok(Self {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            entry_type,
            path: path.to_string_lossy().into_owned(),
            size: own.size(),
            mode: mode::permission_bits(mode),
            permissions: mode::text(own.mode()),
            owner: owners.user(own.uid()),
            group: owners.group(own.gid()),
            modified_time: timestamp::text(own.mtime(), own.mtime_nsec()),
            is_symlink: target.is_some(),
            symlink_target: target.map(|target| target.path.to_string_lossy().into_owned()),
            metadata: if has_metadata { attributes::read(path) } else { Metadata::new() },
        })
    }
}

struct Target {
    path: PathBuf,
    entry_type: EntryType,
    mode: u32,
}

impl Target {
    fn of(link: &Path) -> Self {
        let found = std::fs::canonicalize(link).and_then(|path| Ok((std::fs::metadata(&path)?, path)));
        match found {
            Ok((metadata, path)) => {
                Self { path, entry_type: EntryType::of(&metadata), mode: metadata.mode() }
            }
            Err(_) => Self { path: link.to_owned(), entry_type: EntryType::Unspecified, mode: 0 },
        }
    }
}

fn as_text<S: Serializer>(size: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(size)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the shape serde wants")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn entry(path: &Path) -> Entry {
        Entry::read(path, &mut Owners::default()).expect("an entry")
    }

    #[test]
    fn a_link_shows_its_target_and_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path().canonicalize().expect("a real path");
        let (file, middle, link) = (base.join("file"), base.join("middle"), base.join("link"));
        std::fs::write(&file, "12345").expect("written");
        symlink("file", &middle).expect("a link");
        symlink("middle", &link).expect("a link");
        let entry = entry(&link);
        assert_eq!((entry.entry_type, entry.mode), (EntryType::File, 0o644));
        assert_eq!(entry.symlink_target.as_deref(), file.to_str());
        assert_eq!((entry.permissions.as_str(), entry.size, entry.is_symlink), ("Lrwxrwxrwx", 6, true));
    }

    #[test]
    fn a_broken_or_endless_link_names_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        let (broken, endless) = (directory.path().join("broken"), directory.path().join("endless"));
        symlink("nothing", &broken).expect("a link");
        symlink("endless", &endless).expect("a link");
        for link in [&broken, &endless] {
            let entry = entry(link);
            assert_eq!(
                (entry.entry_type, entry.symlink_target.as_deref()),
                (EntryType::Unspecified, link.to_str())
            );
        }
    }

    #[test]
    fn the_wire_form_is_proto_json() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a");
        std::fs::write(&file, "12").expect("written");
        let wire = serde_json::to_value(entry(&file)).expect("serialises");
        assert_eq!(wire["type"], "FILE_TYPE_FILE");
        assert_eq!(wire["size"], "2");
        assert_eq!(wire["mode"], 420);
        assert_eq!(wire["permissions"], "-rw-r--r--");
        for absent in ["symlinkTarget", "metadata", "isSymlink"] {
            assert!(wire.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn the_root_has_a_name() {
        assert_eq!(entry(Path::new("/")).name, "/");
    }
}
