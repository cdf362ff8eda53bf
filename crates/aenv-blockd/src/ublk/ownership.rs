//! Which devices of the kernel are ours. The kernel keeps a word of the server's with each device; ours says the state
//! directory and the image, so that nothing has to be written down besides, and nothing can disagree.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::abi::{state, DeviceDescription};
use super::control::{ControlDevice, UblkError};

const RECORD: &str = "ublk.json";
const DEVICES: &str = "/sys/class/ublk-char";

/// The state directory in the words of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

/// What is remembered of an owner. A copy of the state directory is another one, which the file's own number tells.
#[derive(Serialize, Deserialize)]
struct Record {
    owner: u32,
    file: u64,
}

/// What is to be done about a device that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It belongs to somebody else.
    Leave,
    /// It may have users: whoever opens its image takes it over.
    Adopt(u64),
    /// Nobody can use it.
    Remove,
}

impl Owner {
    /// Whether devices have ever been made for this state directory.
    pub(crate) fn exists(state: &Path) -> bool {
        state.join(RECORD).exists()
    }

    /// The owner that this state directory is, from its first use on.
    pub(crate) fn load(state: &Path) -> io::Result<Self> {
        let path = state.join(RECORD);
        if let Ok(text) = fs::read(&path) {
            let record: Option<Record> = serde_json::from_slice(&text).ok();
            match record {
                Some(record) if record.file == fs::metadata(&path)?.ino() => return Ok(Self(record.owner)),
                _ => {}
            }
        }
        Self::make(&path)
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; 4];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let owner = u32::from_ne_bytes(bytes);
        let new = path.with_extension("new");
        let file = File::create(&new)?;
        let record = Record { owner, file: file.metadata()?.ino() };
        serde_json::to_writer(&file, &record)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        Ok(Self(owner))
    }

    /// The mark of the device of an image; none when images were opened too often for it.
    pub(crate) fn mark(self, serial: u64) -> Option<u64> {
        u32::try_from(serial).ok().map(|serial| u64::from(self.0) << 32 | u64::from(serial))
    }

    /// The image that a device is of, if it is ours.
    pub(crate) fn serial(self, device: &DeviceDescription) -> Option<u64> {
        (device.mark >> 32 == u64::from(self.0)).then_some(device.mark & u64::from(u32::MAX))
    }

    /// What to do about a device.
    pub(crate) fn judge(self, device: &DeviceDescription) -> Fate {
        match (self.serial(device), device.state) {
            (None, _) => Fate::Leave,
            // The kernel may not have noticed yet that its server is dead.
            (Some(serial), state::LIVE | state::QUIESCED) => Fate::Adopt(serial),
            (Some(_), _) => Fate::Remove,
        }
    }
}

/// All devices of the kernel, whoever they belong to.
pub(crate) fn survey(control: &ControlDevice) -> Result<Vec<DeviceDescription>, UblkError> {
    let entries = match fs::read_dir(DEVICES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| UblkError::System("list the devices of ublk", error))?,
    };
    let numbers =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    // A device that goes away meanwhile is none.
    Ok(numbers.filter_map(|number| control.describe(number).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(mark: u64, state: u16) -> DeviceDescription {
        DeviceDescription { mark, state, ..DeviceDescription::default() }
    }

    #[test]
    fn test_the_fate_of_a_device() {
        let owner = Owner(7);
        let ours = owner.mark(5).unwrap();
        let judge = |mark, state| owner.judge(&device(mark, state));
        assert_eq!(judge(ours, state::QUIESCED), Fate::Adopt(5));
        assert_eq!(judge(ours, state::LIVE), Fate::Adopt(5), "its server may just have died");
        assert_eq!(judge(ours, 0), Fate::Remove, "it was never started, or stopped already");
        assert_eq!(judge(ours, 3), Fate::Remove, "we do not make devices that fail");
        assert_eq!(judge(Owner(8).mark(5).unwrap(), state::QUIESCED), Fate::Leave);
        assert_eq!(judge(0, state::QUIESCED), Fate::Leave);
    }

    #[test]
    fn test_marks_have_room_for_so_many_images() {
        let owner = Owner(u32::MAX);
        assert_eq!(
            owner.serial(&device(owner.mark(u64::from(u32::MAX)).unwrap(), 0)),
            Some(u64::from(u32::MAX))
        );
        assert_eq!(owner.mark(1 << 32), None);
    }

    #[test]
    fn test_a_state_directory_stays_the_same_owner_and_its_copy_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        assert!(!Owner::exists(&first));
        let owner = Owner::load(&first).unwrap();
        assert_eq!(Owner::load(&first).unwrap(), owner);
        fs::copy(first.join(RECORD), second.join(RECORD)).unwrap();
        assert_ne!(Owner::load(&second).unwrap(), owner);
        fs::write(first.join(RECORD), "{").unwrap();
        assert_ne!(Owner::load(&first).unwrap(), owner, "what cannot be read names nobody");
    }
}
