//! The writable layer against the golden vectors and against foreign programs.

use std::sync::Arc;

use aenv_layers::{
    Content, Damage, Directory, Extent, LayerError, Limits, NewSealed, OpenLayer, Piece, ReadAt, SealedLayer,
    Stack, View, Wrapping, WritableLayer,
};

use crate::simulation::Machine;
use crate::support::{build, create, go_on, id, pair, read, read_all, reopen, APPEND, BOOT, IN_PLACE, MIB};

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("../vectors/", $name, ".bin")).as_slice()
    };
}

/// The padding of the index header, where our marks are and the reference has zeros.
const MARKS: std::ops::Range<usize> = 1024..2048;

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|position| (seed * 37 + position * 7 + (position >> 8)) as u8).collect()
}

fn file(directory: &Arc<dyn Directory>, name: &str) -> Vec<u8> {
    let file = directory.open(name).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    let count = file.read_at(0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

fn put(directory: &Arc<dyn Directory>, name: &str, bytes: &[u8]) {
    directory.create(name).unwrap().write_at(0, bytes).unwrap();
}

/// The layer of the vectors: a write, an overwrite, a discard.
fn vector_layer(directory: &Arc<dyn Directory>) -> WritableLayer {
    let layer = create(pair(directory, 0), MIB, APPEND, BOOT).unwrap();
    layer.write(8192, &pattern(1, 4096)).unwrap();
    layer.write(8192 + 1024, &pattern(2, 1024)).unwrap();
    layer.zero(8192, 512).unwrap();
    layer
}

fn vector_content() -> Vec<u8> {
    let mut bytes = vec![0; MIB as usize];
    bytes[8192..8192 + 4096].copy_from_slice(&pattern(1, 4096));
    bytes[8192 + 1024..8192 + 2048].copy_from_slice(&pattern(2, 1024));
    bytes[8192..8192 + 512].fill(0);
    bytes
}

#[test]
fn test_both_files_equal_the_reference() {
    let directory = Machine::new(1).directory();
    let layer = vector_layer(&directory);
    assert_eq!(read_all(&layer), vector_content());
    assert_eq!(file(&directory, "data-0"), vector!("rw_data"));
    let mut index = file(&directory, "index-0");
    assert!(index[MARKS].iter().any(|&byte| byte != 0));
    index[MARKS].fill(0);
    assert_eq!(index, vector!("rw_index"));
}

#[test]
fn test_sealing_in_place_equals_the_reference() {
    let directory = Machine::new(1).directory();
    let layer = vector_layer(&directory);
    let sealed = layer.seal_as("sealed").unwrap();
    assert_eq!(file(&directory, "sealed"), vector!("rw_sealed_in_place"));
    assert!(directory.open("data-0").is_err() && directory.open("index-0").is_err());
    let stack = Stack::new("stack", vec![sealed.into()]).unwrap();
    assert_eq!(read_all(&stack), vector_content());
}

#[test]
fn test_committing_equals_the_reference() {
    let directory = Machine::new(1).directory();
    let layer = vector_layer(&directory);
    let new = NewSealed { id: id(3), parent: id(2), virtual_size: MIB, ..NewSealed::default() };
    let committed = build(Wrapping::default(), |sink| layer.commit(new, sink, &mut go_on));
    assert_eq!(committed, vector!("rw_committed"));
}

#[test]
fn test_a_pair_of_the_reference_opens_and_goes_on() {
    let directory = Machine::new(1).directory();
    put(&directory, "data-0", vector!("rw_data"));
    put(&directory, "index-0", vector!("rw_index"));
    let layer = reopen(pair(&directory, 0), IN_PLACE, BOOT).unwrap();
    assert_eq!((layer.id(), layer.virtual_size()), (id(3), MIB));
    assert_eq!(read_all(&layer), vector_content());
    layer.write(0, &[1; 512]).unwrap();
    layer.close().unwrap();
    let layer = reopen(pair(&directory, 0), IN_PLACE, BOOT).unwrap();
    assert_eq!(read(&layer, 0, 512), [1; 512]);
}

#[test]
fn test_what_a_foreign_program_wrote_after_a_close_is_believed() {
    let directory = Machine::new(1).directory();
    vector_layer(&directory).close().unwrap();
    // The reference appends a sector, its record, padding of a group, and part of a record.
    let data = directory.open("data-0").unwrap();
    let end = data.length().unwrap();
    data.write_at(end, &[9; 512]).unwrap();
    let mut records = ((1u128 << 50) | u128::from(end / 512) << 64).to_le_bytes().to_vec();
    records.extend(((1u128 << 50) - 1).to_le_bytes());
    records.extend([1, 2, 3]);
    let index = directory.open("index-0").unwrap();
    index.write_at(index.length().unwrap(), &records).unwrap();

    for boot in [BOOT, aenv_layers::BootId([8; 16])] {
        let layer = reopen(pair(&directory, 0), APPEND, boot).unwrap();
        assert_eq!(read(&layer, 0, 512), [9; 512]);
        assert_eq!(read(&layer, 512, MIB as usize - 512), vector_content()[512..]);
    }
}

#[test]
fn test_a_tail_that_cannot_be_true_is_cut_off() {
    let directory = Machine::new(1).directory();
    put(&directory, "data-0", vector!("rw_data"));
    // Zeros, as a host leaves them that lost its power.
    put(&directory, "index-0", &[vector!("rw_index"), &[0; 100]].concat());
    let layer = reopen(pair(&directory, 0), APPEND, BOOT).unwrap();
    assert_eq!(read_all(&layer), vector_content());
    assert_eq!(file(&directory, "index-0").len(), vector!("rw_index").len());
}

#[test]
fn test_damage_within_the_durable_part_is_an_error() {
    let directory = Machine::new(1).directory();
    vector_layer(&directory).close().unwrap();
    directory.open("index-0").unwrap().write_at(4096 + 16 + 8, &[0xff; 6]).unwrap();
    let outcome = reopen(pair(&directory, 0), APPEND, BOOT).map(drop);
    let Err(LayerError::Corrupt { layer, offset, damage }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((&*layer, offset, damage), ("writable", 4112, Damage::EntryTarget));
}

#[test]
fn test_lost_data_is_an_error() {
    for name in ["data-0", "index-0"] {
        let directory = Machine::new(1).directory();
        vector_layer(&directory).close().unwrap();
        let file = directory.open(name).unwrap();
        file.set_length(file.length().unwrap() - 16).unwrap();
        let outcome = reopen(pair(&directory, 0), APPEND, BOOT).map(drop);
        assert!(matches!(outcome, Err(LayerError::Corrupt { damage: Damage::LostData, .. })), "{outcome:?}");
    }
}

#[test]
fn test_what_does_not_belong_together_is_refused() {
    let machine = Machine::new(1);
    let directory = machine.directory();
    vector_layer(&directory).close().unwrap();
    let mut data = file(&directory, "data-0");
    data[56..64].copy_from_slice(b"00000FFF");
    put(&directory, "data-1", &data);
    directory.rename("index-0", "index-1").unwrap();
    let outcome = reopen(pair(&directory, 1), APPEND, BOOT).map(drop);
    assert!(
        matches!(outcome, Err(LayerError::Corrupt { damage: Damage::DifferentLayers, .. })),
        "{outcome:?}"
    );
    data[28] |= 1 << 4;
    put(&directory, "data-2", &data);
    directory.rename("index-1", "index-2").unwrap();
    let outcome = reopen(pair(&directory, 2), APPEND, BOOT).map(drop);
    assert!(matches!(outcome, Err(LayerError::Unsupported { .. })), "{outcome:?}");
}

#[test]
fn test_the_size_is_inherited_until_it_grows() {
    let directory = Machine::new(1).directory();
    let layer = create(pair(&directory, 0), 0, APPEND, BOOT).unwrap();
    assert!(matches!(layer.write(0, &[0; 512]), Err(LayerError::OutOfRange { .. })));
    layer.close().unwrap();
    let layer = reopen(pair(&directory, 0), APPEND, BOOT).unwrap();
    assert_eq!(layer.virtual_size(), MIB);
    layer.write(MIB - 512, &[5; 512]).unwrap();
    layer.grow(2 * MIB).unwrap();
    assert!(matches!(layer.grow(MIB), Err(LayerError::Shrinking { .. })));
    assert!(matches!(layer.grow(u64::MAX - 511), Err(LayerError::TooLarge { .. })));
    assert_eq!(read(&layer, 2 * MIB - 512, 512), [0; 512]);
    layer.write(2 * MIB - 512, &[6; 512]).unwrap();
    layer.close().unwrap();
    let layer = reopen(pair(&directory, 0), APPEND, BOOT).unwrap();
    assert_eq!(layer.virtual_size(), 2 * MIB);
    assert_eq!(read(&layer, 2 * MIB - 512, 512), [6; 512]);
    let sealed = layer.seal().unwrap();
    assert_eq!(sealed.virtual_size(), Some(2 * MIB));
}

#[test]
fn test_requests_must_be_whole_sectors_within_the_disk() {
    let directory = Machine::new(1).directory();
    let layer = create(pair(&directory, 0), MIB, IN_PLACE, BOOT).unwrap();
    for (offset, length) in [(1, 512), (0, 511), (512, 1)] {
        assert!(matches!(layer.write(offset, &vec![0; length]), Err(LayerError::Misaligned { .. })));
        assert!(matches!(layer.zero(offset, length as u64), Err(LayerError::Misaligned { .. })));
        assert!(matches!(layer.read(offset, &mut vec![0; length]), Err(LayerError::Misaligned { .. })));
    }
    for offset in [MIB, MIB - 512, u64::MAX - 511] {
        assert!(matches!(layer.write(offset, &[0; 1024]), Err(LayerError::OutOfRange { .. })));
        assert!(matches!(layer.zero(offset, 1024), Err(LayerError::OutOfRange { .. })));
        assert!(matches!(layer.read(offset, &mut [0; 1024]), Err(LayerError::OutOfRange { .. })));
    }
    assert!(matches!(layer.zero(512, u64::MAX - 511), Err(LayerError::OutOfRange { .. })));
}

#[test]
fn test_a_frozen_layer_reads_and_does_not_write() {
    let directory = Machine::new(1).directory();
    let layer = vector_layer(&directory);
    layer.freeze();
    assert!(matches!(layer.write(0, &[0; 512]), Err(LayerError::Frozen { .. })));
    assert!(matches!(layer.zero(0, 512), Err(LayerError::Frozen { .. })));
    assert!(matches!(layer.grow(2 * MIB), Err(LayerError::Frozen { .. })));
    assert_eq!(read_all(&layer), vector_content());
    layer.flush().unwrap();
}

#[test]
fn test_in_place_writes_do_not_grow_the_files() {
    let directory = Machine::new(1).directory();
    let layer = create(pair(&directory, 0), MIB, IN_PLACE, BOOT).unwrap();
    for round in 0..50 {
        layer.write(4096, &[round; 8192]).unwrap();
        layer.zero(64 << 10, 4096).unwrap();
    }
    assert_eq!(layer.space_usage().file_bytes, 4096 + 8192);
    assert_eq!(layer.index_usage().records, 2);
    assert_eq!(read(&layer, 4096, 8192), [49; 8192]);
}

#[test]
fn test_dead_space_is_given_back_after_a_flush_and_not_before() {
    let directory = Machine::new(1).directory();
    let layer = create(pair(&directory, 0), MIB, APPEND, BOOT).unwrap();
    layer.write(0, &[1; 4096]).unwrap();
    layer.flush().unwrap();
    layer.write(0, &[2; 2048]).unwrap();
    layer.zero(2048, 1024).unwrap();
    assert_eq!(layer.reclaim().unwrap(), 0);
    layer.flush().unwrap();
    assert_eq!(layer.reclaim().unwrap(), 3072);
    assert_eq!(layer.reclaim().unwrap(), 0);
    assert_eq!(file(&directory, "data-0")[4096..4096 + 3072], [0; 3072]);
    assert_eq!(read(&layer, 0, 4096), [vec![2; 2048], vec![0; 1024], vec![1; 1024]].concat());
}

#[test]
fn test_compaction_keeps_the_content_and_shortens_the_log() {
    let directory = Machine::new(1).directory();
    let layer = create(pair(&directory, 0), MIB, APPEND, BOOT).unwrap();
    for round in 0..100u8 {
        layer.write(u64::from(round % 4) * 8192, &[round; 4096]).unwrap();
    }
    layer.zero(16_384, 512).unwrap();
    let before = read_all(&layer);
    layer.compact_index().unwrap();
    let usage = layer.index_usage();
    assert_eq!((usage.records, usage.runs), (5, 5));
    layer.write(512, &[0xee; 512]).unwrap();
    layer.close().unwrap();
    let layer = reopen(pair(&directory, 0), APPEND, BOOT).unwrap();
    let after = read_all(&layer);
    assert_eq!(after[512..1024], [0xee; 512]);
    assert_eq!((&after[..512], &after[1024..]), (&before[..512], &before[1024..]));
    assert!(!layer.index_usage().is_worth_compacting());
}

#[test]
fn test_large_writes_and_discards_are_cut_into_records() {
    let directory = Machine::new(1).directory();
    let size = 64 * MIB;
    let layer = create(pair(&directory, 0), size, APPEND, BOOT).unwrap();
    layer.write(0, &vec![7; 9 << 20]).unwrap();
    layer.zero(32 * MIB, 17 * MIB).unwrap();
    // 4 + 4 + 1 MiB, and three times up to 16383 sectors.
    assert_eq!(layer.index_usage().records, 6);
    assert_eq!(read(&layer, (9 << 20) - 512, 1024), [vec![7; 512], vec![0; 512]].concat());
    let piece = |start, length, content| Piece { extent: Extent { start, length }, content };
    assert_eq!(
        layer.pieces(0, size).unwrap(),
        [
            piece(0, 18 << 10, Content::Data),
            piece(18 << 10, (64 - 18) << 10, Content::Hole),
            piece(64 << 10, 34 << 10, Content::Zeroed),
            piece(98 << 10, 30 << 10, Content::Hole),
        ]
    );
    let sealed = layer.seal().unwrap();
    let expected = read_all(&layer);
    assert_eq!(read_all(&Stack::new("stack", vec![sealed.into()]).unwrap()), expected);
}

#[test]
fn test_disks_beyond_two_tebibytes() {
    let directory = Machine::new(1).directory();
    let size = 8u64 << 40;
    let layer = create(pair(&directory, 0), size, IN_PLACE, BOOT).unwrap();
    for offset in [0, (2 << 40) - 512, 2 << 40, size - 512] {
        layer.write(offset, &[(offset >> 38) as u8 + 1; 512]).unwrap();
    }
    let sealed = layer.seal_as("sealed").unwrap();
    let written =
        SealedLayer::open("sealed", Arc::new(directory.open("sealed").unwrap()), &Limits::default());
    assert_eq!(written.unwrap().entries(), sealed.entries());
    let stack = Stack::new("stack", vec![sealed.into()]).unwrap();
    assert_eq!(read(&stack, (2 << 40) - 1024, 1536), [vec![0; 512], vec![8; 512], vec![9; 512]].concat());
    assert_eq!(read(&stack, size - 512, 512), [32; 512]);
    let small = OpenLayer {
        inherited_size: 0,
        policy: APPEND,
        boot: BOOT,
        limits: Limits { virtual_size: MIB, ..Limits::default() },
    };
    put(&directory, "data-9", vector!("rw_data"));
    put(&directory, "index-9", vector!("rw_index"));
    assert!(WritableLayer::open("small", pair(&directory, 9), small).is_ok());
    let smaller = OpenLayer { limits: Limits { virtual_size: MIB - 512, ..small.limits }, ..small };
    let outcome = WritableLayer::open("small", pair(&directory, 9), smaller).map(drop);
    assert!(matches!(outcome, Err(LayerError::TooLarge { .. })));
}
