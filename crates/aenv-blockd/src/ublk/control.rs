//! The control device of ublk: what the kernel can do, and its devices made, started, stopped and deleted. Each command
//! has a ring of its own, so that one that waits holds up no other.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{cqueue, opcode, squeue, types, IoUring};
use nix::errno::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{control, feature, ControlCommand, DeviceDescription, Parameters, ANY_DEVICE, NO_QUEUE};

const PATH: &str = "/dev/ublk-control";
/// Bytes of a command within its submission.
const PAYLOAD: usize = 80;
/// Without these there is no disk that outlives its server.
const NEEDED: u64 = feature::COMMAND_IOCTL_ENCODE
    | feature::USER_COPY
    | feature::USER_RECOVERY
    | feature::USER_RECOVERY_REISSUE;

/// Why a disk cannot be a block device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UblkError {
    /// The driver is not there, or not for us.
    #[error("cannot open {PATH} (is the module ublk_drv loaded?)")]
    NoDriver(#[source] io::Error),
    /// The driver is too old.
    #[error("ublk of this kernel lacks features {0:#x}; Linux 6.5 has them")]
    TooOld(u64),
    /// No ring for commands, or it broke.
    #[error("io_uring cannot be used")]
    Ring(#[source] io::Error),
    /// The kernel refused a command.
    #[error("ublk refused to {action}: {}", .errno.desc())]
    Refused {
        /// What was asked.
        action: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// The driver has a limit, which its user sets.
    #[error("ublk serves no more devices; load ublk_drv with a larger ublks_max")]
    TooMany,
    /// The device is not as this program makes them.
    #[error("device {0} has an unexpected shape")]
    Shape(u32),
    /// A system call failed.
    #[error("cannot {0}")]
    System(&'static str, #[source] io::Error),
    /// Device nodes do not work there.
    #[error("{} is on a file system that is mounted nodev: block devices cannot be opened there", .0.display())]
    NoDevices(std::path::PathBuf),
}

/// The open control device of a kernel that can do what is needed.
pub(crate) struct ControlDevice(OwnedFd);

impl ControlDevice {
    /// Opens the control device, or says why disks cannot be block devices on this host.
    pub(crate) fn open() -> Result<Self, UblkError> {
        let file = File::options().read(true).write(true).open(PATH).map_err(UblkError::NoDriver)?;
        let device = Self(file.into());
        let mut features = 0_u64;
        match device.ask("tell its features", control::GET_FEATURES, ANY_DEVICE, &mut features) {
            // Kernels that cannot tell do not know the command.
            Err(UblkError::Refused { errno: Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV, .. }) => {}
            other => other?,
        }
        match NEEDED & !features {
            0 => Ok(device),
            missing => Err(UblkError::TooOld(missing)),
        }
    }

    /// Makes a device. The kernel changes the description to what it will be.
    pub(crate) fn add(&self, description: &mut DeviceDescription) -> Result<(), UblkError> {
        match self.ask("add a device", control::ADD, description.device, description) {
            Err(UblkError::Refused { errno: Errno::EACCES, .. }) => Err(UblkError::TooMany),
            other => other,
        }
    }

    pub(crate) fn describe(&self, device: u32) -> Result<DeviceDescription, UblkError> {
        let mut description = DeviceDescription::new_zeroed();
        self.ask("describe a device", control::GET_DEVICE, device, &mut description)?;
        Ok(description)
    }

    pub(crate) fn set_parameters(&self, device: u32, mut parameters: Parameters) -> Result<(), UblkError> {
        parameters.length = size_of::<Parameters>() as u32;
        self.ask("take parameters", control::SET_PARAMETERS, device, &mut parameters)
    }

    pub(crate) fn parameters(&self, device: u32) -> Result<Parameters, UblkError> {
        let mut parameters = Parameters { length: size_of::<Parameters>() as u32, ..Parameters::default() };
        self.ask("tell parameters", control::GET_PARAMETERS, device, &mut parameters)?;
        Ok(parameters)
    }

    /// Makes the disk appear. Returns once every queue fetches.
    pub(crate) fn start(&self, device: u32) -> Result<(), UblkError> {
        self.order("start a device", control::START, device, u64::from(std::process::id()))
    }

    /// Makes the disk disappear; who has it open gets errors.
    pub(crate) fn stop(&self, device: u32) -> Result<(), UblkError> {
        self.order("stop a device", control::STOP, device, 0)
    }

    /// Deletes a device that is stopped. It is gone once nobody has it open.
    pub(crate) fn delete(&self, device: u32) -> Result<(), UblkError> {
        self.order("delete a device", control::DELETE_WITHOUT_WAITING, device, 0)
    }

    /// Begins to take over a device whose server died.
    pub(crate) fn start_recovery(&self, device: u32) -> Result<(), UblkError> {
        self.order("give us a device", control::START_RECOVERY, device, 0)
    }

    /// Hands out requests again. Returns once every queue fetches.
    pub(crate) fn end_recovery(&self, device: u32) -> Result<(), UblkError> {
        self.order("go on with a device", control::END_RECOVERY, device, u64::from(std::process::id()))
    }

    fn order(&self, action: &'static str, operation: u32, device: u32, value: u64) -> Result<(), UblkError> {
        let command = ControlCommand { device, queue: NO_QUEUE, value, ..ControlCommand::default() };
        self.submit(action, operation, command, Box::default()).map(drop)
    }

    /// Gives the kernel a record, and takes what it made of it.
    fn ask<T: IntoBytes + FromBytes + zerocopy::Immutable + zerocopy::KnownLayout>(
        &self,
        action: &'static str,
        operation: u32,
        device: u32,
        record: &mut T,
    ) -> Result<(), UblkError> {
        let bytes = Box::from(record.as_bytes());
        let command = ControlCommand {
            device,
            queue: NO_QUEUE,
            length: size_of::<T>() as u16,
            ..ControlCommand::default()
        };
        let bytes = self.submit(action, operation, command, bytes)?;
        *record = T::read_from_bytes(&bytes).expect("the length has not changed");
        Ok(())
    }

    fn submit(
        &self,
        action: &'static str,
        operation: u32,
        mut command: ControlCommand,
        mut bytes: Box<[u8]>,
    ) -> Result<Box<[u8]>, UblkError> {
        if !bytes.is_empty() {
            command.address = bytes.as_mut_ptr() as u64;
        }
        let mut payload = [0; PAYLOAD];
        payload[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
            IoUring::builder().build(1).map_err(UblkError::Ring)?;
        loop {
            let entry =
                opcode::UringCmd80::new(types::Fd(self.0.as_raw_fd()), operation).cmd(payload).build();
            // SAFETY: the one address in the command is that of `bytes`, which lives until the command is complete: it
            // is kept for good if that is never known.
            unsafe { ring.submission().push(&entry) }.expect("the ring is empty");
            match complete(&mut ring) {
                // A signal that this program does not know of; the command is meant to be given again.
                Ok(result) if result == -libc::EINTR => {}
                Ok(0..) => return Ok(bytes),
                Ok(result) => return Err(UblkError::Refused { action, errno: Errno::from_raw(-result) }),
                Err(error) => {
                    std::mem::forget(bytes);
                    return Err(UblkError::Ring(error));
                }
            }
        }
    }
}

/// Waits for the result of what was submitted.
fn complete(ring: &mut IoUring<squeue::Entry128, cqueue::Entry>) -> io::Result<i32> {
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        if let Some(entry) = ring.completion().next() {
            return Ok(entry.result());
        }
    }
}
