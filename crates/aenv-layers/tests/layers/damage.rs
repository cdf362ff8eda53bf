//! Damaged and hostile input: a typed error that names the layer, or the right bytes; never a panic.

use std::sync::Arc;

use aenv_layers::{
    find_member, Damage, FileSink, LayerError, LayerWriter, Limits, Memory, NewSealed, SealedLayer, Stack,
    View, ZfileReader, MAX_ENTRIES_PER_LAYER,
};
use proptest::prelude::*;

use crate::simulation::{Dice, Machine};
use crate::support::{go_on, pair, read, reopen, source, APPEND, BOOT};

macro_rules! vectors {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../vectors/", $name, ".bin")).as_slice())),*]
    };
}

fn sealed_vectors() -> Vec<(&'static str, &'static [u8])> {
    vectors![
        "empty_sealed",
        "two_segments",
        "data_and_zero",
        "rw_sealed_in_place",
        "rw_committed",
        "zfile_two_segments",
        "tar_zfile_two_segments",
        "tar_two_segments",
    ]
    .to_vec()
}

/// How much of a disk is looked at: all data of the vectors is within.
const SEEN: u64 = 16 << 10;

const LIMITS: Limits = Limits { virtual_size: 4 << 20, compressed_blocks: 1 << 12 };

/// Opens and reads everything there is to read.
fn try_layer(bytes: &[u8]) -> Result<Vec<u8>, LayerError> {
    let layer = Arc::new(SealedLayer::open("hostile", source(bytes), &LIMITS)?);
    layer.verify(&mut go_on)?;
    let mut end = 0;
    for entry in layer.entries() {
        assert!(entry.start() >= end && entry.length() > 0, "an invalid index was accepted");
        end = entry.end();
    }
    let stack = Stack::new("hostile", vec![layer])?;
    Ok(read(&stack, 0, stack.size().min(SEEN) as usize))
}

fn check_error(name: &str, error: &LayerError) {
    let text = error.to_string();
    assert!(text.contains("hostile"), "{name}: {text}");
    let is_typed = matches!(
        error,
        LayerError::Corrupt { .. } | LayerError::Unsupported { .. } | LayerError::TooLarge { .. }
    );
    assert!(is_typed, "{name}: {error:?}");
}

#[test]
fn test_every_truncation_is_an_error() {
    for (name, bytes) in sealed_vectors() {
        // The end of an archive may be missing: nothing of the layer is in it.
        let end = if name.starts_with("tar") { bytes.len() - 1024 - 512 } else { bytes.len() };
        for length in (0..end).step_by(7) {
            match try_layer(&bytes[..length]) {
                Ok(_) => panic!("{name} cut to {length} bytes is accepted"),
                Err(error) => check_error(name, &error),
            }
        }
    }
}

#[test]
fn test_every_flipped_bit_is_an_error_or_a_valid_layer() {
    for (name, bytes) in sealed_vectors() {
        let intact = try_layer(bytes).unwrap();
        let mut flipped = bytes.to_vec();
        let is_protected = name.contains("zfile");
        let bits = bytes.len() * 8;
        for bit in (0..bits).step_by((bits / 3000) | 1) {
            flipped[bit / 8] ^= 1 << (bit % 8);
            match try_layer(&flipped) {
                Ok(content) => {
                    assert!(!is_protected || content == intact, "{name}: bit {bit} gave wrong bytes");
                }
                Err(error) => check_error(name, &error),
            }
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn test_a_damaged_block_is_found_and_named() {
    let (_, bytes) = vectors!["zfile_2blocks"][0];
    for position in 0x21e..0x33d {
        let mut damaged = bytes.to_vec();
        damaged[position] ^= 0x40;
        let reader = ZfileReader::open("hostile", source(&damaged), &LIMITS).unwrap();
        let mut first = vec![0; 4096];
        reader.read_exact(0, &mut first).unwrap();
        assert_eq!(first, vec![b'A'; 4096]);
        let outcome = reader.read_exact(4096, &mut [0; 904]);
        let Err(LayerError::Corrupt { offset, damage, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((offset, damage), (0x21e, Damage::Checksum));
    }
}

/// A source whose copy is damaged until it is told to forget it.
struct DamagedCopy {
    original: Memory,
    damaged: std::sync::atomic::AtomicBool,
    position: u64,
}

impl aenv_layers::ReadAt for DamagedCopy {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.original.read_at(offset, buffer)?;
        let inside = self.position.checked_sub(offset).filter(|&inside| inside < count as u64);
        if let Some(inside) = inside.filter(|_| self.damaged.load(std::sync::atomic::Ordering::Relaxed)) {
            buffer[inside as usize] ^= 1;
        }
        Ok(count)
    }

    fn length(&self) -> std::io::Result<u64> {
        self.original.length()
    }

    fn evict(&self, offset: u64, length: u64) {
        if (offset..offset + length).contains(&self.position) {
            self.damaged.store(false, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn test_a_damaged_copy_is_fetched_again() {
    let (_, bytes) = vectors!["tar_zfile_two_segments"][0];
    let copy =
        DamagedCopy { original: Memory::new(bytes.to_vec()), damaged: true.into(), position: 1536 + 512 + 9 };
    let layer = SealedLayer::open("copy", Arc::new(copy), &LIMITS).unwrap();
    layer.verify(&mut go_on).unwrap();
}

#[test]
fn test_compression_bombs_are_bounded_by_what_they_claim() {
    let (_, bytes) = vectors!["zfile_2blocks_legacy"][0];
    let trailer = bytes.len() - 512;
    let claim = |at: usize, value: &[u8]| {
        let mut hostile = bytes.to_vec();
        hostile[trailer + at..trailer + at + value.len()].copy_from_slice(value);
        ZfileReader::open("hostile", source(&hostile), &Limits::default()).map(drop).unwrap_err()
    };
    // More blocks than there are, a size that they cannot have, a table beyond the file, absurd block sizes.
    for error in [
        claim(48, &u64::MAX.to_le_bytes()),
        claim(48, &(1u64 << 27).to_le_bytes()),
        claim(56, &u64::MAX.to_le_bytes()),
        claim(40, &u64::MAX.to_le_bytes()),
        claim(40, &0u64.to_le_bytes()),
        claim(72, &0u32.to_le_bytes()),
        claim(72, &(1u32 << 31).to_le_bytes()),
        claim(76, &[0]),
        claim(78, &[1]),
    ] {
        check_error("legacy", &error);
    }
}

#[test]
fn test_other_archives_are_not_layers() {
    let (_, bytes) = vectors!["tar_two_segments"][0];
    let mut renamed = bytes.to_vec();
    // Both bytes change, so that the checksum stays.
    renamed[1024] += 1;
    renamed[1025] -= 1;
    let outcome = find_member("hostile", source(&renamed));
    assert!(matches!(outcome, Err(LayerError::Corrupt { offset: 1024, damage: Damage::ArchiveMembers, .. })));
    let two_members = [&bytes[..bytes.len() - 1024], bytes].concat();
    let outcome = find_member("hostile", source(&two_members));
    assert!(matches!(outcome, Err(LayerError::Corrupt { damage: Damage::ArchiveMembers, .. })));
}

#[test]
fn test_indices_beyond_the_limit_are_neither_read_nor_written() {
    let (_, bytes) = vectors!["two_segments"][0];
    let mut claims = bytes.to_vec();
    let trailer = bytes.len() - 4096;
    claims[trailer + 40..trailer + 48].copy_from_slice(&1_000_001u64.to_le_bytes());
    let error = try_layer(&claims).unwrap_err();
    assert!(matches!(error, LayerError::TooLarge { value: 1_000_001, limit: 1_000_000, .. }), "{error:?}");

    let mut sink = FileSink::new("hostile", Arc::new(Memory::default()), 0);
    let mut writer = LayerWriter::new(NewSealed::default(), &mut sink).unwrap();
    let outcome = (0..=MAX_ENTRIES_PER_LAYER).try_for_each(|run| writer.zeroed(run * 2, 1));
    assert!(matches!(outcome, Err(LayerError::TooLarge { .. })), "{outcome:?}");
}

#[test]
fn test_runs_out_of_order_are_refused() {
    let mut sink = FileSink::new("new", Arc::new(Memory::default()), 0);
    let mut writer = LayerWriter::new(NewSealed::default(), &mut sink).unwrap();
    writer.zeroed(8, 8).unwrap();
    for outcome in [writer.zeroed(15, 1), writer.data(0, &[0; 512]), writer.zeroed(u64::MAX, 2)] {
        assert!(matches!(outcome, Err(LayerError::OutOfOrder { .. })), "{outcome:?}");
    }
    assert!(matches!(writer.data(16, &[0; 100]), Err(LayerError::Misaligned { .. })));
    writer.zeroed(16, 1).unwrap();
}

fn put_pair(data: &[u8], index: &[u8]) -> Machine {
    let machine = Machine::new(1);
    let directory = machine.directory();
    directory.create("data-0").unwrap().write_at(0, data).unwrap();
    directory.create("index-0").unwrap().write_at(0, index).unwrap();
    machine
}

#[test]
fn test_damaged_pairs_open_to_a_disk_or_not_at_all() {
    let [(_, data), (_, index)] = vectors!["rw_data", "rw_index"];
    let mut dice = Dice::new(5);
    for _ in 0..3000 {
        let (mut data, mut index) = (data.to_vec(), index.to_vec());
        for _ in 0..1 + dice.below(4) {
            let victim = if dice.chance(30) { &mut data } else { &mut index };
            let position = match dice.below(3) {
                0 => dice.below(160),
                1 => victim.len() - 1 - dice.below(64),
                _ => dice.below(victim.len()),
            };
            victim[position] ^= 1 << dice.below(8);
            if dice.chance(10) {
                let length = victim.len().min(position.max(200));
                victim.truncate(length);
            }
        }
        let machine = put_pair(&data, &index);
        if let Ok(layer) = reopen(pair(&machine.directory(), 0), APPEND, BOOT) {
            let size = layer.size().min(1 << 21) & !511;
            crate::support::read(&layer, 0, size as usize);
            layer.flush().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn test_any_bytes_are_no_layer_or_a_valid_one(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        if let Err(error) = try_layer(&bytes) {
            check_error("random", &error);
        }
    }

    /// Valid containers around random numbers reach further than random bytes.
    #[test]
    fn test_random_indices_are_refused_or_valid(
        vector in 0usize..5,
        at in 0usize..4096,
        noise in prop::collection::vec(any::<u8>(), 1..64),
        from_end: bool,
    ) {
        let mut bytes = sealed_vectors()[vector].1.to_vec();
        let at = if from_end { bytes.len() - 1 - at.min(bytes.len() - 1) } else { at };
        for (position, value) in noise.into_iter().enumerate() {
            if let Some(byte) = bytes.get_mut(at + position) {
                *byte = value;
            }
        }
        if let Err(error) = try_layer(&bytes) {
            check_error("noise", &error);
        }
    }
}
