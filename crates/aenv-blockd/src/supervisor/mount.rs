//! The mount: made, recorded, found dead and taken away. It touches no mount but the one that the record names, and
//! that only when the kernel says it is ours.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use serde::{Deserialize, Serialize};

use super::error::{SupervisorError, Supply};
use super::start::random_id;
use crate::fuse::{negotiate, Agreement, Device};
use crate::log;

const KIND: &str = "fuse.aenv-blockd";
const RECORD: &str = "mount.json";

/// What is remembered of a mount, from before it is made until it is gone.
#[derive(Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    source: String,
}

/// A mount that is there.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    pub(crate) devices: Vec<Device>,
    pub(crate) agreement: Agreement,
    /// Tells it from earlier and later ones.
    pub(crate) id: [u8; 16],
}

/// Takes away the mount that an earlier program left behind. The lock of the state directory proves that it is dead.
pub(crate) fn clean_dead(state: &Path) -> Result<(), SupervisorError> {
    let record_path = state.join(RECORD);
    let text = match fs::read(&record_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.supply("read", &record_path)?,
    };
    let record: Record = serde_json::from_slice(&text).map_err(|error| SupervisorError::BadRecord {
        path: record_path.clone(),
        reason: error.to_string(),
    })?;
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").supply("read", Path::new("/proc/self/mountinfo"))?;
    let count = mounts.lines().filter_map(Line::parse).filter(|line| line.is_of(&record)).count();
    for _ in 0..count {
        umount2(&record.path, MntFlags::MNT_DETACH)
            .map_err(io::Error::from)
            .supply("unmount", &record.path)?;
        log::warning("dead_mount_removed", &[("mount", &record.path)]);
    }
    fs::remove_file(&record_path).supply("remove", &record_path)
}

impl Mount {
    /// Mounts, agrees with the kernel on how to talk, and opens one descriptor per thread to come.
    pub(crate) fn make(
        state: &Path,
        path: &Path,
        threads: usize,
        read_ahead_kib: u32,
    ) -> Result<Self, SupervisorError> {
        DirBuilder::new().recursive(true).mode(0o711).create(path).supply("create", path)?;
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").supply("read", Path::new("/proc/self/mountinfo"))?;
        if mounts.lines().filter_map(Line::parse).any(|line| line.path == path) {
            return Err(SupervisorError::ForeignMount(path.to_owned()));
        }
        let record = Record { path: path.to_owned(), source: format!("aenv-blockd:{}", state.display()) };
        let record_path = state.join(RECORD);
        let text = serde_json::to_vec(&record).map_err(io::Error::other).supply("write", &record_path)?;
        // Before the mount, so that a crash right after it leaves one that the next start knows.
        fs::write(&record_path, text).supply("write", &record_path)?;
        let device = Device::open_unbound().supply("open", Path::new("/dev/fuse"))?;
        do_mount(&device, &record).supply("mount on", path)?;
        let made = Self::prepare(path, device, threads, read_ahead_kib);
        if made.is_err() {
            // The first failure is the one to report; the record stays for the next start.
            let _ = umount2(path, MntFlags::MNT_DETACH);
        }
        made
    }

    fn prepare(
        path: &Path,
        device: Device,
        threads: usize,
        read_ahead_kib: u32,
    ) -> Result<Self, SupervisorError> {
        let agreement = negotiate(&device)?;
        let mut devices = Vec::with_capacity(threads);
        for _ in 1..threads {
            devices.push(device.open_clone().supply("clone", Path::new("/dev/fuse"))?);
        }
        devices.push(device);
        set_read_ahead(path, read_ahead_kib);
        Ok(Self { path: path.to_owned(), devices, agreement, id: random_id()? })
    }

    /// Unmounts; open files keep the rest of the mount until they are closed.
    pub(crate) fn remove(self, state: &Path) {
        drop(self.devices);
        match umount2(&self.path, MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL) => {
                let _ = fs::remove_file(state.join(RECORD));
            }
            Err(errno) => {
                log::warning("mount_not_removed", &[("mount", &self.path), ("reason", &errno.desc())])
            }
        }
    }
}

fn do_mount(device: &Device, record: &Record) -> io::Result<()> {
    use std::os::fd::AsFd;
    let options = format!(
        "fd={},rootmode=40711,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_fd().as_raw_fd()
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    mount(Some(record.source.as_str()), &record.path, Some(KIND), flags, Some(options.as_str()))?;
    Ok(())
}

/// Buffered reads of the mount are those of memory images: how much to read ahead is a matter of speed only.
fn set_read_ahead(path: &Path, kib: u32) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = mounts.lines().filter_map(Line::parse).find(|line| line.path == path && line.kind == KIND);
    let Some(line) = line else { return };
    let knob = format!("/sys/class/bdi/{}/read_ahead_kb", line.device);
    if let Err(error) = fs::write(&knob, kib.to_string()) {
        log::warning("read_ahead_not_set", &[("file", &knob), ("reason", &error.to_string())]);
    }
}

/// A line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    device: &'a str,
    path: PathBuf,
    kind: &'a str,
    source: String,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (front, back) = text.split_once(" - ")?;
        let mut front = front.split(' ');
        let device = front.nth(2)?;
        let path = unescape(front.nth(1)?).into();
        let mut back = back.split(' ');
        Some(Self { device, path, kind: back.next()?, source: unescape(back.next()?) })
    }

    fn is_of(&self, record: &Record) -> bool {
        self.kind == KIND && self.path == record.path && self.source == record.source
    }
}

/// The kernel writes blanks as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                plain.push(value);
                rest = &behind[3..];
            }
            _ => {
                plain.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_our_own_mount_is_recognised() {
        let record = Record { path: "/run/our images".into(), source: "aenv-blockd:/s".into() };
        let ours = "40 25 0:43 / /run/our\\040images rw,nosuid shared:9 - fuse.aenv-blockd aenv-blockd:/s rw";
        assert!(Line::parse(ours).unwrap().is_of(&record));
        for other in [
            ours.replace("aenv-blockd:/s", "aenv-blockd:/t"),
            ours.replace("our\\040images", "our\\040images2"),
            ours.replace("fuse.aenv-blockd", "fuse.sshfs"),
        ] {
            assert!(!Line::parse(&other).unwrap().is_of(&record), "{other}");
        }
        assert_eq!(Line::parse("no mount at all"), None);
    }
}
