//! Any reads through the cache equal the blob, whatever is evicted, damaged, saved and reopened between them.

use std::sync::Arc;

use aenv_layers::ReadAt;
use proptest::prelude::*;

use super::{content, open_entry, read, shared, Known, CHUNK};
use crate::cache::blob::CachedBlob;
use crate::gate::in_background;
use crate::simulation::Machine;

const SIZE: usize = 13 * CHUNK as usize + 777;

#[derive(Clone, Debug)]
enum Step {
    Read(usize, usize),
    ReadInBackground(usize, usize),
    /// A checksum above us failed for this range.
    Distrust(usize, usize),
    /// A bit of the file on disk flips; only what is not verified yet can notice.
    Damage(usize),
    Evict(u64),
    Save,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let offset = || 0..SIZE + 100;
    let length = || prop_oneof![0..100_usize, 1..3 * CHUNK as usize, Just(SIZE)];
    prop_oneof![
        6 => (offset(), length()).prop_map(|(at, length)| Step::Read(at, length)),
        1 => (offset(), length()).prop_map(|(at, length)| Step::ReadInBackground(at, length)),
        1 => (offset(), length()).prop_map(|(at, length)| Step::Distrust(at, length)),
        1 => (0..SIZE).prop_map(Step::Damage),
        2 => (0..SIZE as u64).prop_map(Step::Evict),
        2 => Just(Step::Save),
        1 => Just(Step::Reopen),
    ]
}

fn run(steps: Vec<Step>, capacity: u64, has_short_calls: bool) {
    let bytes = content(SIZE);
    let machine = Machine::new(9);
    if has_short_calls {
        machine.shorten_calls();
    }
    let remote = Arc::new(Known::new(&bytes));
    let open = || {
        let shared = shared(capacity);
        let entry = open_entry(machine.directory(), SIZE, Arc::clone(&shared)).unwrap();
        (CachedBlob::new(entry, Arc::clone(&remote) as _, None), shared)
    };
    let (mut blob, mut shared) = open();
    for step in steps {
        match step {
            Step::Read(at, length) => check(&blob, &bytes, at, length),
            Step::ReadInBackground(at, length) => in_background(|| check(&blob, &bytes, at, length)),
            Step::Distrust(at, length) => blob.evict(at as u64, length as u64),
            Step::Damage(at) => {
                // A new life begins, so that every chunk is compared before it is believed.
                let before = read_file(&machine, at);
                (blob, shared) = open();
                machine.directory().open("data").unwrap().write_at(at as u64, &[before ^ 4]).unwrap();
            }
            Step::Evict(wanted) => {
                let stored = blob.entry().stored_bytes();
                let freed = blob.entry().evict(wanted);
                assert!(freed >= wanted.min(stored), "{freed} of {wanted}, stored {stored}");
            }
            Step::Save => blob.entry().checkpoint().unwrap(),
            Step::Reopen => (blob, shared) = open(),
        }
        assert_eq!(shared.budget.used(), blob.entry().stored_bytes());
        assert!(shared.budget.used() <= capacity.max(SIZE as u64));
    }
}

fn read_file(machine: &Machine, at: usize) -> u8 {
    let mut byte = [0];
    machine.directory().open("data").unwrap().read_at(at as u64, &mut byte).unwrap();
    byte[0]
}

fn check(blob: &CachedBlob, bytes: &[u8], at: usize, length: usize) {
    let start = at.min(bytes.len());
    let end = (at + length).min(bytes.len());
    assert_eq!(read(blob, at, length).unwrap(), bytes[start..end], "{length} bytes at {at}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_through_the_cache_equal_the_blob(
        steps in proptest::collection::vec(step(), 1..40),
        capacity in prop_oneof![Just(0_u64), 1..SIZE as u64, Just(1 << 30)],
        has_short_calls: bool,
    ) {
        run(steps, capacity, has_short_calls);
    }
}
