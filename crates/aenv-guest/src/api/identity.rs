//! Who this sandbox is: small files and the host name, rewritten after each restore.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::state::Environment;

/// Writes each identity variable as a file `.NAME`, as programs inside expect them.
pub(super) fn write_files(directory: &Path, identity: &Environment) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for (name, value) in identity {
        replace_file(&directory.join(format!(".{name}")), value.as_bytes(), 0o644)?;
    }
    Ok(())
}

/// Whether the kernel and everybody else could bear this host name.
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 64 && name.split('.').all(is_label)
}

/// Whether this is a machine id as systemd writes them.
pub(super) fn is_machine_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Gives the machine its id. Images whose file is a link or a special file keep it as it is: it may lead anywhere.
pub(super) fn write_machine_id(id: &str) -> io::Result<()> {
    let path = Path::new("/etc/machine-id");
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Ok(()),
        _ => replace_file(path, format!("{id}\n").as_bytes(), 0o444),
    }
}

/// Writes beside and renames: readers see the old or the new content, and a link in place is replaced, not followed.
fn replace_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&beside)?;
    file.write_all(content)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_labels() {
        for good in ["sandbox", "i-abc123", "a.b", "x_1"] {
            assert!(is_host_name(good), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".", "a..b", "-a", "a b", "a\n", "ü", long.as_str()] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }

    #[test]
    fn identity_files_replace_links_without_following_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let victim = directory.path().join("victim");
        fs::write(&victim, "untouched").expect("written");
        let run = directory.path().join("run");
        fs::create_dir(&run).expect("made");
        std::os::unix::fs::symlink(&victim, run.join(".E2B_SANDBOX_ID")).expect("linked");
        let identity = Environment::from([("E2B_SANDBOX_ID".to_owned(), "abc".to_owned())]);
        write_files(&run, &identity).expect("written");
        assert_eq!(fs::read_to_string(run.join(".E2B_SANDBOX_ID")).expect("read"), "abc");
        assert_eq!(fs::read_to_string(victim).expect("read"), "untouched");
    }
}
