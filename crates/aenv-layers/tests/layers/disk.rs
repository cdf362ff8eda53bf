//! Disks of many layers against a plain array of bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use aenv_layers::{
    bridge_gaps, commit, flatten, Compression, Content, Directory, Disk, LayerError, Limits, NewSealed,
    Overwrite, SealedLayer, Stack, View, Wrapping, WritePolicy, ZfileOptions,
};
use proptest::prelude::*;

use crate::simulation::Machine;
use crate::support::{build, create, go_on, id, open, pair, read_all, reopen, BOOT, SECTOR};

const SECTORS: u64 = 128;

/// What a disk is asked to do.
#[derive(Clone, Debug)]
enum Step {
    Write {
        start: u64,
        length: u64,
        value: u8,
    },
    Zero {
        start: u64,
        length: u64,
    },
    Flush,
    Reopen,
    Compact,
    Reclaim,
    Grow(u64),
    /// Freeze the top and put a new layer over it.
    Restack,
    /// Seal the oldest frozen layer, in place or as a copy in some wrapping.
    Adopt(Packing),
    /// Merge the base into one layer.
    Flatten(Packing),
}

#[derive(Clone, Copy, Debug)]
enum Packing {
    InPlace,
    Committed { wrapping: Wrapping, detect_zeroes: bool },
}

fn packing() -> impl Strategy<Value = Packing> {
    let compression = prop_oneof![Just(Compression::Lz4), Just(Compression::Zstd)];
    let options = (compression, 12u32..=15, any::<bool>()).prop_map(|(compression, bits, checksums)| {
        ZfileOptions { compression, block_size: 1 << bits, checksums }
    });
    prop_oneof![
        Just(Packing::InPlace),
        (prop::option::of(options), any::<bool>(), any::<bool>()).prop_map(
            |(compression, archive, detect_zeroes)| Packing::Committed {
                wrapping: Wrapping { compression, archive },
                detect_zeroes
            }
        ),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..SECTORS).prop_flat_map(|start| (Just(start), 1..=SECTORS - start));
    prop_oneof![
        8 => (range(), any::<u8>()).prop_map(|((start, length), value)| Step::Write { start, length, value }),
        4 => range().prop_map(|(start, length)| Step::Zero { start, length }),
        1 => Just(Step::Flush),
        2 => Just(Step::Reopen),
        1 => Just(Step::Compact),
        1 => Just(Step::Reclaim),
        1 => (0u64..8).prop_map(Step::Grow),
        3 => Just(Step::Restack),
        3 => packing().prop_map(Step::Adopt),
        1 => packing().prop_map(Step::Flatten),
    ]
}

/// A disk beside the array that it must equal.
struct Pair {
    directory: Arc<dyn Directory>,
    policy: WritePolicy,
    disk: Disk,
    model: Vec<u8>,
    /// Numbers of the pairs of files, the newest first.
    numbers: Vec<usize>,
    frozen: Vec<Arc<aenv_layers::WritableLayer>>,
    next: usize,
}

impl Pair {
    fn new(policy: WritePolicy) -> Self {
        let directory = Machine::new(1).directory();
        let size = SECTORS * SECTOR as u64;
        let top = create(pair(&directory, 0), size, policy, BOOT).unwrap();
        let disk = Disk::new("disk", Arc::new(top), Arc::new(Stack::new("base", Vec::new()).unwrap()));
        Self {
            directory,
            policy,
            disk,
            model: vec![0; size as usize],
            numbers: vec![0],
            frozen: Vec::new(),
            next: 1,
        }
    }

    fn apply(&mut self, step: Step) {
        let sector = SECTOR as u64;
        match step {
            Step::Write { start, length, value } => {
                let bytes: Vec<u8> =
                    (0..length * sector).map(|position| value.wrapping_add((position >> 9) as u8)).collect();
                self.disk.write(start * sector, &bytes).unwrap();
                self.model[(start * sector) as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            Step::Zero { start, length } => {
                self.disk.zero(start * sector, length * sector).unwrap();
                self.model[(start * sector) as usize..][..(length * sector) as usize].fill(0);
            }
            Step::Flush => self.disk.flush().unwrap(),
            Step::Compact => self.disk.top().compact_index().unwrap(),
            Step::Reclaim => drop(self.disk.top().reclaim().unwrap()),
            Step::Grow(sectors) => {
                let size = self.model.len() as u64 + sectors * sector;
                self.disk.grow(size).unwrap();
                self.model.resize(size as usize, 0);
            }
            Step::Reopen => self.reopen(),
            Step::Restack => self.restack(),
            Step::Adopt(packing) => self.adopt(packing),
            Step::Flatten(packing) => self.flatten(packing),
        }
    }

    /// Half of the time without a close, as after the death of the program.
    fn reopen(&mut self) {
        if self.next % 2 == 0 {
            self.disk.top().close().unwrap();
        }
        let mut layers = self
            .numbers
            .iter()
            .map(|&number| Arc::new(reopen(pair(&self.directory, number), self.policy, BOOT).unwrap()));
        let top = layers.next().unwrap();
        self.frozen = layers.collect();
        self.disk = Disk::with_frozen("disk", top, self.frozen.clone(), self.disk.base());
    }

    fn restack(&mut self) {
        if self.numbers.len() > 3 {
            return;
        }
        let top = create(pair(&self.directory, self.next), self.disk.size(), self.policy, BOOT).unwrap();
        let frozen = self.disk.restack(Arc::new(top)).unwrap();
        self.frozen.insert(0, frozen);
        self.numbers.insert(0, self.next);
        self.next += 1;
    }

    fn adopt(&mut self, packing: Packing) {
        let Some(oldest) = self.frozen.last() else { return };
        let sealed = match packing {
            Packing::InPlace => oldest.seal_as(&format!("sealed-{}", self.next)).unwrap(),
            Packing::Committed { wrapping, detect_zeroes } => {
                let new = NewSealed {
                    id: id(1),
                    virtual_size: oldest.virtual_size(),
                    detect_zeroes,
                    ..NewSealed::default()
                };
                let bytes = build(wrapping, |sink| oldest.commit(new, sink, &mut go_on));
                let sealed = open(&bytes);
                sealed.verify(&mut go_on).unwrap();
                Arc::try_unwrap(sealed).ok().unwrap()
            }
        };
        self.next += 1;
        self.disk.adopt(oldest, Arc::new(sealed)).unwrap();
        self.frozen.pop();
        self.numbers.pop();
    }

    fn flatten(&mut self, packing: Packing) {
        let base = self.disk.base();
        let Packing::Committed { wrapping, detect_zeroes } = packing else { return };
        let new = NewSealed { id: id(5), virtual_size: base.size(), detect_zeroes, ..NewSealed::default() };
        let flat = open(&build(wrapping, |sink| flatten(&base, new, sink, &mut go_on)));
        let flat = Stack::new("flat", vec![flat]).unwrap();
        assert_eq!(read_all(&flat), read_all(base.as_ref()));
        self.disk = Disk::with_frozen("disk", self.disk.top(), self.frozen.clone(), Arc::new(flat));
    }

    fn check(&self) {
        assert_eq!(self.disk.size(), self.model.len() as u64);
        assert!(read_all(&self.disk) == self.model, "the disk differs from the model");
        for piece in self.disk.pieces(0, self.disk.size()).unwrap() {
            let range = piece.extent.offset() as usize..piece.extent.end() as usize * SECTOR;
            let is_zero = self.model[range].iter().all(|&byte| byte == 0);
            assert!(piece.content == Content::Data || is_zero, "{piece:?} holds data");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn test_a_disk_equals_an_array_of_bytes(
        in_place: bool,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let overwrite = if in_place { Overwrite::InPlace } else { Overwrite::Append };
        let mut pair = Pair::new(WritePolicy { overwrite, remember_dead: true });
        for step in steps {
            pair.apply(step);
            pair.check();
        }
    }
}

fn layers_of(pair: &Pair) -> Vec<Arc<SealedLayer>> {
    pair.disk.base().layers().to_vec()
}

fn merge(layers: Vec<Arc<SealedLayer>>) -> Arc<SealedLayer> {
    let stack = Stack::new("part", layers).unwrap();
    let new = NewSealed { id: id(6), virtual_size: stack.size(), ..NewSealed::default() };
    open(&build(Wrapping::default(), |sink| flatten(&stack, new, sink, &mut go_on)))
}

fn three_layers() -> Pair {
    let mut pair = Pair::new(WritePolicy::default());
    let steps = [(0, 100, 1, 20, 40), (30, 60, 2, 80, 10), (10, 5, 3, 50, 60)];
    for (start, length, value, zero_start, zero_length) in steps {
        pair.apply(Step::Write { start, length, value });
        pair.apply(Step::Zero { start: zero_start, length: zero_length });
        pair.apply(Step::Restack);
        pair.apply(Step::Adopt(Packing::InPlace));
    }
    pair.check();
    pair
}

#[test]
fn test_merging_is_associative_to_the_last_byte() {
    let pair = three_layers();
    let layers = layers_of(&pair);
    let all = Stack::new("all", layers.clone()).unwrap();
    let new = || NewSealed { id: id(7), virtual_size: all.size(), ..NewSealed::default() };
    let at_once = build(Wrapping::default(), |sink| flatten(&all, new(), sink, &mut go_on));
    let left = Stack::new("left", vec![merge(layers[..2].to_vec()), layers[2].clone()]).unwrap();
    let right = Stack::new("right", vec![layers[0].clone(), merge(layers[1..].to_vec())]).unwrap();
    for stack in [left, right] {
        assert_eq!(build(Wrapping::default(), |sink| flatten(&stack, new(), sink, &mut go_on)), at_once);
    }
}

#[test]
fn test_pieces_of_a_whole_disk_commit_to_the_same_disk() {
    let pair = three_layers();
    let pieces = bridge_gaps(&pair.disk.pieces(0, pair.disk.size()).unwrap());
    let new = NewSealed { virtual_size: pair.disk.size(), ..NewSealed::default() };
    let bytes = build(Wrapping::default(), |sink| commit(&pair.disk, &pieces, new, sink, &mut go_on));
    assert_eq!(read_all(&Stack::new("copy", vec![open(&bytes)]).unwrap()), pair.model);
}

#[test]
fn test_layers_are_adopted_in_the_order_of_freezing() {
    let mut pair = Pair::new(WritePolicy::default());
    pair.apply(Step::Restack);
    pair.apply(Step::Restack);
    let newest = pair.frozen[0].clone();
    let sealed = Arc::new(newest.seal().unwrap());
    let outcome = pair.disk.adopt(&newest, sealed).map(drop);
    assert!(matches!(outcome, Err(LayerError::OutOfTurn { .. })), "{outcome:?}");
    pair.check();
}

#[test]
fn test_a_smaller_layer_cannot_become_the_top() {
    let pair = Pair::new(WritePolicy::default());
    let small = create(crate::support::pair(&pair.directory, 9), 512, WritePolicy::default(), BOOT).unwrap();
    assert!(matches!(pair.disk.restack(Arc::new(small)), Err(LayerError::Shrinking { .. })));
    pair.disk.write(0, &[1; 512]).unwrap();
}

#[test]
fn test_a_stack_has_at_most_255_layers() {
    let empty = open(include_bytes!("../vectors/empty_sealed.bin"));
    let stack = Stack::new("high", vec![empty.clone(); 255]).unwrap();
    let outcome = stack.with_top(empty.clone()).map(drop);
    assert!(matches!(outcome, Err(LayerError::TooLarge { limit: 255, .. })), "{outcome:?}");
    assert!(Stack::new("higher", vec![empty; 256]).is_err());
}

#[test]
fn test_a_watcher_ends_the_work() {
    let pair = three_layers();
    let mut sink = aenv_layers::FileSink::new("new", Arc::new(aenv_layers::Memory::default()), 0);
    let outcome =
        flatten(
            &pair.disk.base(),
            NewSealed::default(),
            &mut sink,
            &mut |_| std::ops::ControlFlow::Break(()),
        );
    assert!(matches!(outcome, Err(LayerError::Cancelled { .. })), "{outcome:?}");
}

/// Each writer owns a part of the disk and counts in it; readers see counts rise and never fall.
#[test]
fn test_restacking_under_readers_and_writers_changes_no_visible_byte() {
    for overwrite in [Overwrite::Append, Overwrite::InPlace] {
        let policy = WritePolicy { overwrite, remember_dead: true };
        let pair = Pair::new(policy);
        let is_over = AtomicBool::new(false);
        let disk = &pair.disk;
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut count = 0u64;
                    while !is_over.load(Ordering::Relaxed) {
                        count += 1;
                        let bytes = count.to_le_bytes().repeat(SECTOR / 8);
                        disk.write(writer * SECTOR as u64, &bytes).unwrap();
                        if count % 16 == 0 {
                            disk.flush().unwrap();
                        }
                        let read = crate::support::read(disk, writer * SECTOR as u64, SECTOR);
                        assert_eq!(read, bytes);
                    }
                });
                scope.spawn(move || {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let read = crate::support::read(disk, writer * SECTOR as u64, SECTOR);
                        let count = u64::from_le_bytes(read[..8].try_into().unwrap());
                        assert!(count >= last, "{count} after {last}");
                        assert_eq!(read, count.to_le_bytes().repeat(SECTOR / 8));
                        last = count;
                    }
                });
            }
            for number in 1..60 {
                let top =
                    create(crate::support::pair(&pair.directory, number), disk.size(), policy, BOOT).unwrap();
                let frozen = disk.restack(Arc::new(top)).unwrap();
                let sealed = frozen.seal_as(&format!("sealed-{number}")).unwrap();
                disk.adopt(&frozen, Arc::new(sealed)).unwrap();
                disk.top().compact_index().unwrap();
                disk.top().reclaim().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(disk.base().layers().len(), 59);
    }
}

#[test]
fn test_a_disk_larger_than_its_base_sees_zeros_behind_it() {
    let base = Stack::new("base", vec![open(include_bytes!("../vectors/two_segments.bin"))]).unwrap();
    let directory = Machine::new(1).directory();
    let size = 2 << 20;
    let top = create(pair(&directory, 0), size, WritePolicy::default(), BOOT).unwrap();
    let disk = Disk::new("disk", Arc::new(top), Arc::new(base));
    let bytes = read_all(&disk);
    assert_eq!(bytes.len(), size as usize);
    assert_eq!((&bytes[..1024], &bytes[1 << 20..]), ([0xa5; 1024].as_slice(), vec![0; 1 << 20].as_slice()));
    let _ = Limits::default();
}
