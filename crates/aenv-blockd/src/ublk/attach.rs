//! The life of one device: made or taken over, served by its queues, stopped and deleted. Every failure on the way
//! takes back what was made.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::abi::{attribute, feature, part, DeviceDescription, Parameters, ANY_DEVICE, SECTOR_SIZE};
use super::character::Character;
use super::control::{ControlDevice, UblkError};
use super::nodes::NodeDirectory;
use super::openers::DeviceNumbers;
use super::queue::{self, Place};
use super::request::MAX_TRANSFER;
use crate::image::Image;
use crate::log;

/// Requests that one queue has under way.
const DEPTH: u16 = 64;
/// Most queues of a disk.
const MAX_QUEUES: usize = 4;
/// Most sectors that are discarded or zeroed at once: so much is entered into a layer while others wait.
const MAX_ZERO_SECTORS: u32 = (128 << 20) / SECTOR_SIZE as u32;
/// How long the kernel may take to bury a dead server.
const BURIAL: Duration = Duration::from_secs(30);
/// How long to wait before asking for it again.
const BURIAL_STEP: Duration = Duration::from_millis(5);

/// A device that is served.
pub(crate) struct Attached {
    device: u32,
    /// The numbers of its block device.
    pub(crate) disk: DeviceNumbers,
    queues: Vec<JoinHandle<()>>,
}

/// What devices are made with.
pub(crate) struct Workshop {
    pub(crate) control: ControlDevice,
    pub(crate) nodes: NodeDirectory,
}

impl Workshop {
    /// Makes a device for an image of `size` bytes.
    pub(crate) fn attach(&self, image: &Arc<Image>, size: u64, mark: u64) -> Result<Attached, UblkError> {
        let mut description = describe(mark);
        self.control.add(&mut description)?;
        let device = description.device;
        let attached = self
            .control
            .set_parameters(device, parameters(size, image.is_writable()))
            .and_then(|()| self.serve(image, &description, ControlDevice::start));
        if attached.is_err() {
            self.delete(device);
        }
        attached
    }

    /// Takes over a device whose server died; those who use it do not notice.
    pub(crate) fn adopt(
        &self,
        image: &Arc<Image>,
        description: &DeviceDescription,
    ) -> Result<Attached, UblkError> {
        let deadline = Instant::now() + BURIAL;
        loop {
            match self.control.start_recovery(description.device) {
                Err(UblkError::Refused { errno: Errno::EBUSY, .. }) if Instant::now() < deadline => {
                    thread::sleep(BURIAL_STEP);
                }
                other => break other?,
            }
        }
        self.serve(image, description, ControlDevice::end_recovery)
    }

    /// Takes a device away. Those who have it open get errors.
    pub(crate) fn detach(&self, attached: Attached) {
        self.stop(attached.device, attached.queues);
        self.delete(attached.device);
    }

    /// Removes a device that nobody serves.
    pub(crate) fn remove(&self, device: u32) {
        self.stop(device, Vec::new());
        self.delete(device);
    }

    /// Starts the queues, then the device by `begin`.
    fn serve(
        &self,
        image: &Arc<Image>,
        description: &DeviceDescription,
        begin: impl FnOnce(&ControlDevice, u32) -> Result<(), UblkError>,
    ) -> Result<Attached, UblkError> {
        let device = description.device;
        let has_room = description.max_transfer as usize <= MAX_TRANSFER;
        if !has_room || description.features & feature::USER_COPY == 0 {
            return Err(UblkError::Shape(device));
        }
        let parameters = self.control.parameters(device)?;
        let numbers = (parameters.character_major, parameters.character_minor);
        let character = self.nodes.open_character(device, numbers);
        let character = character.map_err(|error| UblkError::System("open the device of a disk", error))?;
        let mut queues = Vec::new();
        let begun = start_queues(image, &Arc::new(character), description, &mut queues)
            .and_then(|()| begin(&self.control, device))
            .and_then(|()| self.control.parameters(device));
        match begun {
            Ok(now) => Ok(Attached { device, disk: (now.disk_major, now.disk_minor), queues }),
            Err(error) => {
                self.stop(device, queues);
                Err(error)
            }
        }
    }

    fn stop(&self, device: u32, queues: Vec<JoinHandle<()>>) {
        match self.control.stop(device) {
            Ok(()) => queues.into_iter().for_each(|queue| {
                // A panic has been printed.
                let _ = queue.join();
            }),
            Err(error) => complain("device_not_stopped", device, &error),
        }
    }

    fn delete(&self, device: u32) {
        if let Err(error) = self.control.delete(device) {
            complain("device_not_deleted", device, &error);
        }
    }
}

/// The next server finds what is left by its mark.
fn complain(event: &str, device: u32, error: &UblkError) {
    log::error(event, &[("device", &u64::from(device)), ("reason", &log::chain(error))]);
}

fn start_queues(
    image: &Arc<Image>,
    character: &Arc<Character>,
    description: &DeviceDescription,
    queues: &mut Vec<JoinHandle<()>>,
) -> Result<(), UblkError> {
    for number in 0..description.queues {
        let (image, character) = (Arc::clone(image), Arc::clone(character));
        let place = Place { image, character, number, depth: description.depth };
        queues.push(
            queue::start(place).map_err(|error| UblkError::System("start the queues of a disk", error))?,
        );
    }
    Ok(())
}

fn describe(mark: u64) -> DeviceDescription {
    let queues = thread::available_parallelism().map_or(1, usize::from).min(MAX_QUEUES);
    DeviceDescription {
        queues: queues as u16,
        depth: DEPTH,
        max_transfer: MAX_TRANSFER as u32,
        device: ANY_DEVICE,
        features: feature::USER_COPY
            | feature::USER_RECOVERY
            | feature::USER_RECOVERY_REISSUE
            | feature::COMMAND_IOCTL_ENCODE,
        mark,
        ..DeviceDescription::default()
    }
}

fn parameters(size: u64, is_writable: bool) -> Parameters {
    let plain = Parameters {
        parts: part::BASIC,
        logical_shift: 9,
        physical_shift: 12,
        best_shift: 12,
        least_shift: 12,
        max_sectors: (MAX_TRANSFER as u64 / SECTOR_SIZE) as u32,
        sectors: size / SECTOR_SIZE,
        ..Parameters::default()
    };
    if !is_writable {
        return Parameters { attributes: attribute::READ_ONLY, ..plain };
    }
    Parameters {
        parts: part::BASIC | part::DISCARD,
        attributes: attribute::VOLATILE_CACHE,
        discard_granularity: 4096,
        max_discard_sectors: MAX_ZERO_SECTORS,
        max_zeroes_sectors: MAX_ZERO_SECTORS,
        max_discard_segments: 1,
        ..plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_writable_disks_hear_of_flushes_and_discards() {
        let disk = parameters(1 << 30, true);
        assert_eq!((disk.parts, disk.attributes, disk.sectors), (3, attribute::VOLATILE_CACHE, 1 << 21));
        let disk = parameters(1 << 30, false);
        assert_eq!((disk.parts, disk.attributes, disk.max_discard_sectors), (1, attribute::READ_ONLY, 0));
    }

    #[test]
    fn test_a_device_survives_its_server() {
        let device = describe(9);
        assert_eq!((device.mark, device.device, device.depth), (9, u32::MAX, 64));
        assert_eq!(device.features, 0b1101_1000);
        assert!((1..=4).contains(&device.queues));
    }
}
