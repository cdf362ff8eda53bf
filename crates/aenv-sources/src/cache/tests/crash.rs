//! Stories with deaths in them: of the program at any call, of the host with any legal loss. After each the index names
//! only chunks whose bytes are right.

use std::sync::Arc;

use super::{content, digest, open_entry, read, shared, Known, CHUNK};
use crate::cache::blob::CachedBlob;
use crate::cache::disk::read_exact;
use crate::cache::entry::read_index;
use crate::simulation::{Dice, Fault, Lie, Machine};

/// More were told when this was written; so many find each mistake that was known.
const STORIES: u64 = 1000;
const SIZE: usize = 9 * CHUNK as usize + 333;

/// What the durable index promises must be there. Returns how many chunks that were.
fn check_promises(machine: &Machine, bytes: &[u8]) -> Result<usize, String> {
    let directory = machine.directory();
    let Some(index) = read_index(&*directory) else { return Ok(0) };
    assert_eq!(index.digest, digest());
    let file = directory.open("data").map_err(|error| error.to_string())?;
    let mut promised = 0;
    for (chunk, _) in index.sums.iter().enumerate().filter(|(_, sum)| sum.is_some()) {
        let range = index.geometry.bytes(chunk as u32..chunk as u32 + 1);
        let mut found = vec![0; (range.end - range.start) as usize];
        read_exact(&*file, range.start, &mut found).map_err(|error| error.to_string())?;
        if found != bytes[range.start as usize..range.end as usize] {
            return Err(format!("chunk {chunk} is promised and wrong"));
        }
        promised += 1;
    }
    Ok(promised)
}

/// Several lives on one machine, each ended by a death. Returns how many chunks outlived a death.
fn tell(seed: u64, lie: Option<Lie>) -> Result<usize, String> {
    let bytes = content(SIZE);
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    if let Some(lie) = lie {
        machine.lie(lie);
    }
    let mut outlived = 0;
    for _ in 0..4 {
        machine.fault_after(dice.below(120), Fault::Death);
        live(&machine, &bytes, &mut dice);
        if dice.chance(70) {
            machine.restart_host();
        } else {
            machine.restart_program();
        }
        outlived += check_promises(&machine, &bytes)?;
    }
    // Whatever happened, the next life reads right bytes.
    let entry = open_entry(machine.directory(), SIZE, shared(1 << 20)).map_err(|error| error.to_string())?;
    let blob = CachedBlob::new(entry, Arc::new(Known::new(&bytes)), None);
    assert_eq!(read(&blob, 0, SIZE).unwrap(), bytes);
    Ok(outlived)
}

/// Reads, saves and evicts until the program dies. Reads are right to the end, for a remote needs no disk.
fn live(machine: &Machine, bytes: &[u8], dice: &mut Dice) {
    let shared = shared(6 * u64::from(CHUNK));
    let Ok(entry) = open_entry(machine.directory(), SIZE, shared) else { return };
    let blob = CachedBlob::new(entry, Arc::new(Known::new(bytes)), None);
    for _ in 0..30 {
        match dice.below(10) {
            0..=5 => {
                let at = dice.below(SIZE);
                let length = (1 + dice.below(2 * CHUNK as usize)).min(SIZE - at);
                assert_eq!(read(&blob, at, length).unwrap(), bytes[at..at + length]);
            }
            6..=7 => {
                let _ = blob.entry().checkpoint();
            }
            _ => {
                blob.entry().evict(dice.below(3 * CHUNK as usize) as u64);
            }
        }
    }
}

#[test]
fn the_index_names_only_what_is_durable() {
    let outlived: usize = (0..STORIES).map(|seed| tell(seed, None).unwrap()).sum();
    assert!(outlived as u64 > STORIES, "the stories must be about something: {outlived}");
}

#[test]
fn a_disk_that_does_not_sync_is_noticed() {
    for lie in [Lie::Data, Lie::Directory] {
        assert!((0..STORIES).any(|seed| tell(seed, Some(lie)).is_err()), "{lie:?}");
    }
}
