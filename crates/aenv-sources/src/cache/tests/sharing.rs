//! Many readers at once: one fetch for all, no wrong bytes while chunks are evicted, the limit always kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use aenv_layers::ReadAt;

use super::{blob, content, open_entry, read, shared, Broken, Known, CHUNK};
use crate::cache::blob::CachedBlob;
use crate::simulation::{Dice, Fault, Machine};

const READERS: usize = 8;

/// Lets readers begin together while one fetch is under way, and counts fetches.
fn read_together(remote: &Arc<Known>, blob: &CachedBlob) -> Vec<std::io::Result<Vec<u8>>> {
    let begin = Barrier::new(READERS);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    read(blob, number * 10, 10)
                })
            })
            .collect();
        // The fetch has begun; whoever comes now joins it.
        remote.meeting.as_ref().unwrap().wait();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    })
}

#[test]
fn one_fetch_serves_all_who_wait() {
    let bytes = content(CHUNK as usize);
    let remote = Arc::new(Known { meeting: Some(Barrier::new(2)), ..Known::new(&bytes) });
    let shared = shared(1 << 20);
    let blob = blob(Arc::clone(&remote), Arc::clone(&shared));
    for (number, outcome) in read_together(&remote, &blob).into_iter().enumerate() {
        assert_eq!(outcome.unwrap(), bytes[number * 10..number * 10 + 10]);
    }
    assert_eq!(remote.count(), 1);
    let counters = &shared.counters;
    assert_eq!(counters.misses.get() + counters.joined.get() + counters.hits.get(), READERS as u64);
}

#[test]
fn without_room_bytes_are_passed_on() {
    let bytes = content(3 * CHUNK as usize);
    let shared = shared(u64::from(CHUNK));
    let blob = blob(Arc::new(Known::new(&bytes)), Arc::clone(&shared));
    assert_eq!(read(&blob, 0, bytes.len()).unwrap(), bytes);
    assert_eq!((shared.counters.bypassed_chunks.get(), shared.budget.used()), (2, u64::from(CHUNK)));
}

#[test]
fn a_failed_fetch_is_shared_and_the_next_reader_tries_again() {
    let bytes = content(CHUNK as usize);
    let remote = Arc::new(Known::new(&bytes));
    remote.failures.store(1, Ordering::SeqCst);
    let blob = blob(Arc::clone(&remote), shared(1 << 20));
    read(&blob, 0, 10).unwrap_err();
    assert_eq!(read(&blob, 0, 10).unwrap(), bytes[..10]);
    assert_eq!(remote.count(), 2);
}

#[test]
fn who_waited_for_another_remote_asks_its_own() {
    let bytes = content(CHUNK as usize);
    let machine = Machine::new(1);
    let entry = open_entry(machine.directory(), bytes.len(), shared(1 << 20)).unwrap();
    let failing = Arc::new(Known { meeting: Some(Barrier::new(2)), ..Known::new(&bytes) });
    failing.failures.store(1, Ordering::SeqCst);
    let good = Arc::new(Known::new(&bytes));
    let first = CachedBlob::new(Arc::clone(&entry), Arc::clone(&failing) as _, None);
    let second = CachedBlob::new(entry, Arc::clone(&good) as _, None);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(&first, 0, 10));
        let second = scope.spawn(|| {
            failing.meeting.as_ref().unwrap().wait();
            read(&second, 0, 10)
        });
        first.join().unwrap().unwrap_err();
        assert_eq!(second.join().unwrap().unwrap(), bytes[..10]);
    });
    assert_eq!(good.count(), 1);
}

#[test]
fn readers_see_right_bytes_while_chunks_are_evicted() {
    let bytes = content(20 * CHUNK as usize);
    let capacity = 7 * u64::from(CHUNK);
    let shared = shared(capacity);
    let blob = blob(Arc::new(Known::new(&bytes)), Arc::clone(&shared));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|seed| {
                let (blob, bytes, shared) = (&blob, &bytes, &shared);
                scope.spawn(move || {
                    let mut dice = Dice::new(seed);
                    for _ in 0..2000 {
                        let at = dice.below(bytes.len());
                        let length = dice.below(2 * CHUNK as usize).min(bytes.len() - at);
                        assert_eq!(read(blob, at, length).unwrap(), bytes[at..at + length]);
                        assert!(shared.budget.used() <= capacity);
                    }
                })
            })
            .collect();
        let evictor = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                blob.entry().evict(3 * u64::from(CHUNK));
                blob.evict(5 * u64::from(CHUNK), u64::from(CHUNK));
            }
        });
        for reader in readers {
            reader.join().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        evictor.join().unwrap();
    });
    assert!(shared.counters.evicted_chunks.get() > 0 && shared.counters.hits.get() > 0);
    assert_eq!(shared.budget.used(), blob.entry().stored_bytes());
}

#[test]
fn a_full_disk_makes_reads_pass_by() {
    const ENOSPC: i32 = 28;
    let bytes = content(4 * CHUNK as usize);
    let machine = Machine::new(1);
    let shared = shared(1 << 20);
    let entry = open_entry(machine.directory(), bytes.len(), Arc::clone(&shared)).unwrap();
    let remote = Arc::new(Known::new(&bytes));
    let blob = CachedBlob::new(entry, Arc::clone(&remote) as _, None);
    machine.fault_after(0, Fault::ErrorFromNowOn(ENOSPC));
    for _ in 0..2 {
        assert_eq!(read(&blob, 100, 5000).unwrap(), bytes[100..5100]);
    }
    assert_eq!((shared.budget.used(), shared.counters.failed_writes.get()), (0, 2));
    assert_eq!(remote.count(), 2, "the second read is a fetch again, and does not try to write");
}

#[test]
fn a_disk_that_fails_is_left_aside() {
    const EIO: i32 = 5;
    let bytes = content(4 * CHUNK as usize);
    for calls in 0..40 {
        for fault in [Fault::Error(EIO), Fault::ErrorFromNowOn(EIO)] {
            let machine = Machine::new(calls);
            let shared = shared(1 << 20);
            let entry = open_entry(machine.directory(), bytes.len(), Arc::clone(&shared)).unwrap();
            let blob = CachedBlob::new(entry, Arc::new(Known::new(&bytes)), None);
            machine.fault_after(calls as usize, fault);
            for _ in 0..3 {
                assert_eq!(read(&blob, 100, 9000).unwrap(), bytes[100..9100]);
                let _ = blob.entry().checkpoint();
                blob.entry().evict(u64::from(CHUNK));
            }
            assert_eq!(read(&blob, 0, bytes.len()).unwrap(), bytes);
        }
    }
}

#[test]
fn an_index_that_cannot_be_written_costs_nothing_but_itself() {
    let bytes = content(4 * CHUNK as usize);
    let shared = shared(1 << 20);
    let entry = open_entry(Arc::new(Broken::default()), bytes.len(), Arc::clone(&shared)).unwrap();
    let blob = CachedBlob::new(entry, Arc::new(Known::new(&bytes)), None);
    assert_eq!(read(&blob, 0, bytes.len()).unwrap(), bytes);
    blob.entry().checkpoint().unwrap_err();
    assert_eq!(blob.entry().evict(1), u64::from(CHUNK), "the index is removed instead, which needs no room");
    assert_eq!(read(&blob, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn reads_that_follow_each_other_are_fetched_ahead() {
    let bytes = content(16 * CHUNK as usize);
    let remote = Arc::new(Known::new(&bytes));
    let blob = blob(Arc::clone(&remote), shared(1 << 20));
    for at in (0..bytes.len()).step_by(512) {
        read(&blob, at, 512).unwrap();
    }
    let lengths: Vec<_> =
        remote.ranges.lock().unwrap().iter().map(|(_, length)| length / CHUNK as usize).collect();
    assert_eq!(lengths, [1, 2, 4, 4, 4, 1]);
}
