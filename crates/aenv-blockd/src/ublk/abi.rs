//! The bytes of the kernel's ublk protocol. Layouts and numbers only; no behaviour.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands for the control device; the numbers say how many bytes go which way, as those of ioctl do.
pub(crate) mod control {
    pub(crate) const GET_DEVICE: u32 = 0x8020_7502;
    pub(crate) const ADD: u32 = 0xC020_7504;
    pub(crate) const START: u32 = 0xC020_7506;
    pub(crate) const STOP: u32 = 0xC020_7507;
    pub(crate) const SET_PARAMETERS: u32 = 0xC020_7508;
    pub(crate) const GET_PARAMETERS: u32 = 0x8020_7509;
    pub(crate) const START_RECOVERY: u32 = 0xC020_7510;
    pub(crate) const END_RECOVERY: u32 = 0xC020_7511;
    pub(crate) const GET_FEATURES: u32 = 0x8020_7513;
    pub(crate) const DELETE_WITHOUT_WAITING: u32 = 0x8020_7514;
}

/// Commands for the character device of one disk.
pub(crate) mod io {
    pub(crate) const FETCH: u32 = 0xC010_7520;
    pub(crate) const COMMIT_AND_FETCH: u32 = 0xC010_7521;
}

/// What the kernel can do, and what a device is asked to do.
pub(crate) mod feature {
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(crate) const COMMAND_IOCTL_ENCODE: u64 = 1 << 6;
    pub(crate) const USER_COPY: u64 = 1 << 7;
}

/// States of a device.
pub(crate) mod state {
    pub(crate) const LIVE: u16 = 1;
    pub(crate) const QUIESCED: u16 = 2;
}

/// Kinds of requests: the lowest byte of a descriptor's first word.
pub(crate) mod operation {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
}

/// Attributes of a disk.
pub(crate) mod attribute {
    pub(crate) const READ_ONLY: u32 = 1;
    /// Without it, the kernel keeps flushes to itself.
    pub(crate) const VOLATILE_CACHE: u32 = 4;
}

/// Which parts of the parameters are there.
pub(crate) mod part {
    pub(crate) const BASIC: u32 = 1;
    pub(crate) const DISCARD: u32 = 2;
}

/// Requests that one queue may have under way, as far as the kernel allows.
pub(crate) const MAX_QUEUE_DEPTH: u64 = 4096;
/// The kernel chooses the number of a new device.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;
/// A control command is about no queue.
pub(crate) const NO_QUEUE: u16 = u16::MAX;
/// What the kernel counts in, whatever the logical blocks of a disk.
pub(crate) const SECTOR_SIZE: u64 = 512;

/// Where the bytes of a request are within the character device.
pub(crate) fn bytes_position(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// Bytes of the descriptors of a queue as they are mapped.
pub(crate) fn descriptors_length(depth: u16, page: u64) -> u64 {
    (u64::from(depth) * size_of::<Descriptor>() as u64).next_multiple_of(page)
}

/// Where the descriptors of a queue are within the character device.
pub(crate) fn descriptors_position(queue: u16, page: u64) -> u64 {
    u64::from(queue) * (MAX_QUEUE_DEPTH * size_of::<Descriptor>() as u64).next_multiple_of(page)
}

macro_rules! layout {
    ($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
    };
}

layout! {
    /// Within the submission of a control command.
    ControlCommand {
        device: u32, queue: u16, length: u16, address: u64, value: u64, path_length: u16, padding: u16, reserved: u32,
    }
}
layout! {
    /// Within the submission of a command for the character device.
    IoCommand { queue: u16, tag: u16, result: i32, address: u64 }
}
layout! {
    /// What a device is. `mark` is the server's own word, which the kernel keeps.
    DeviceDescription {
        queues: u16, depth: u16, state: u16, padding: u16, max_transfer: u32, device: u32, server: i32, padding_2: u32,
        features: u64, mark: u64, owner_user: u32, owner_group: u32, reserved: [u64; 2],
    }
}
layout! {
    /// What the disk of a device is.
    Parameters {
        length: u32, parts: u32,
        attributes: u32, logical_shift: u8, physical_shift: u8, best_shift: u8, least_shift: u8,
        max_sectors: u32, chunk_sectors: u32, sectors: u64, boundary_mask: u64,
        discard_alignment: u32, discard_granularity: u32, max_discard_sectors: u32, max_zeroes_sectors: u32,
        max_discard_segments: u16, discard_padding: u16,
        character_major: u32, character_minor: u32, disk_major: u32, disk_minor: u32,
        padding: u32,
    }
}
layout! {
    /// A request. `start` and `count` are in sectors.
    Descriptor { operation_and_flags: u32, count: u32, start: u64, address: u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_layouts_have_the_sizes_of_the_kernel() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(size_of::<IoCommand>(), 16);
        assert_eq!(size_of::<DeviceDescription>(), 64);
        assert_eq!(size_of::<Descriptor>(), 24);
        // Up to the numbers of the device nodes; what newer kernels have behind them is theirs to leave out.
        assert_eq!(size_of::<Parameters>(), 80);
    }

    #[test]
    fn test_a_command_is_packed_as_the_kernel_reads_it() {
        let command = IoCommand { queue: 0x0102, tag: 0x0304, result: -5, address: 0x0a0b };
        assert_eq!(command.as_bytes(), [2, 1, 4, 3, 0xfb, 0xff, 0xff, 0xff, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0]);
        let command = ControlCommand {
            device: 7,
            queue: NO_QUEUE,
            length: 64,
            address: 1,
            value: 2,
            ..Default::default()
        };
        let mut expected = [0; 32];
        expected[0] = 7;
        expected[4..8].copy_from_slice(&[0xff, 0xff, 64, 0]);
        (expected[8], expected[16]) = (1, 2);
        assert_eq!(command.as_bytes(), expected);
    }

    #[test]
    fn test_parameters_are_packed_as_the_kernel_reads_them() {
        let parameters = Parameters {
            length: 80,
            parts: 3,
            attributes: 4,
            logical_shift: 9,
            physical_shift: 12,
            sectors: 0x1122,
            max_discard_sectors: 0x33,
            max_discard_segments: 1,
            disk_major: 259,
            disk_minor: 5,
            ..Default::default()
        };
        let bytes = parameters.as_bytes();
        assert_eq!(bytes[..16], [80, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 9, 12, 0, 0]);
        assert_eq!(bytes[24..32], [0x22, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!((bytes[48], bytes[56]), (0x33, 1));
        assert_eq!(bytes[68..76], [3, 1, 0, 0, 5, 0, 0, 0]);
    }

    #[test]
    fn test_a_device_is_described_as_the_kernel_does() {
        let bytes: Vec<u8> = (0..64).collect();
        let device = DeviceDescription::read_from_bytes(&bytes).unwrap();
        assert_eq!((device.queues, device.depth, device.state), (0x0100, 0x0302, 0x0504));
        assert_eq!(
            (device.max_transfer, device.device, device.server),
            (0x0b0a_0908, 0x0f0e_0d0c, 0x1312_1110)
        );
        assert_eq!((device.features, device.mark), (0x1f1e_1d1c_1b1a_1918, 0x2726_2524_2322_2120));
    }

    #[test]
    fn test_places_within_the_character_device() {
        assert_eq!(bytes_position(0, 0), 0x8000_0000);
        assert_eq!(bytes_position(3, 5), 0x8000_0000 + (3 << 41) + (5 << 25));
        assert_eq!((descriptors_length(64, 4096), descriptors_length(4096, 4096)), (4096, 98304));
        assert_eq!((descriptors_position(0, 4096), descriptors_position(2, 4096)), (0, 196_608));
    }
}
