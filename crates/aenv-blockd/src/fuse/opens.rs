//! Who has files open. The kernel tells it once, so that it is kept in a file that outlives this program: a handle is
//! the number of the request that opened it, which stays the same when the kernel asks again. Files that the kernel reads
//! by itself are noted beside them, because all opens of one have to name the same number.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"AENVOPN2";

/// Most files that processes may have open at once, all images together.
const MAX_OPENS: u32 = 1 << 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    mount: [u8; 16],
}

/// A free slot has handle 0, which no request has; one with the highest bit notes the backing file of a node.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Slot {
    handle: u64,
    node: u64,
    backing: i64,
}

const BACKING: u64 = 1 << 63;

/// The open files of one mount.
pub(crate) struct Opens {
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    file: File,
    slots: HashMap<u64, (u32, u64)>,
    counts: HashMap<u64, usize>,
    backings: HashMap<u64, (u32, i32)>,
    free: Vec<u32>,
    /// Slots that the file has.
    length: u32,
}

impl Opens {
    /// Opens the file; what another mount left in it is void.
    pub(crate) fn load(path: &Path, mount: [u8; 16]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let header = Header { magic: MAGIC, mount };
        let mut found = [0; size_of::<Header>()];
        let is_ours = match file.read_exact_at(&mut found, 0) {
            Ok(()) => found == *header.as_bytes(),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(error),
        };
        let mut state = State {
            file,
            slots: HashMap::new(),
            counts: HashMap::new(),
            backings: HashMap::new(),
            free: Vec::new(),
            length: 0,
        };
        if is_ours {
            state.read_slots()?;
        } else {
            state.file.set_len(0)?;
            state.file.write_all_at(header.as_bytes(), 0)?;
        }
        Ok(Self { state: Mutex::new(state), released: Condvar::new() })
    }

    /// Notes that a file was opened. False when too many are open, or the note cannot be kept.
    pub(crate) fn add(&self, handle: u64, node: u64) -> bool {
        let mut state = self.lock();
        if state.slots.contains_key(&handle) {
            return true;
        }
        let Some(number) = state.take_slot(Slot { handle, node, backing: 0 }) else { return false };
        state.slots.insert(handle, (number, node));
        *state.counts.entry(node).or_default() += 1;
        true
    }

    /// Notes that the last user of an opened file is gone.
    pub(crate) fn remove(&self, handle: u64) {
        let mut state = self.lock();
        let Some((number, node)) = state.slots.remove(&handle) else { return };
        state.forget(node);
        self.released.notify_all();
        if state.write_slot(number, Slot::default()).is_ok() {
            state.free.push(number);
        }
    }

    /// Forgets all users of a node.
    pub(crate) fn remove_node(&self, node: u64) {
        let handles: Vec<u64> = {
            let state = self.lock();
            state.slots.iter().filter(|(_, (_, of))| *of == node).map(|(handle, _)| *handle).collect()
        };
        handles.into_iter().for_each(|handle| self.remove(handle));
    }

    /// The kernel's number of the file that it reads for a node by itself.
    pub(crate) fn backing(&self, node: u64) -> Option<i32> {
        self.lock().backings.get(&node).map(|(_, backing)| *backing)
    }

    /// Notes that number. False when the note cannot be kept.
    pub(crate) fn set_backing(&self, node: u64, backing: i32) -> bool {
        let mut state = self.lock();
        let slot = Slot { handle: BACKING | node, node, backing: i64::from(backing) };
        let Some(number) = state.take_slot(slot) else { return false };
        state.backings.insert(node, (number, backing));
        true
    }

    /// Forgets it, and returns what the kernel has to forget too.
    pub(crate) fn take_backing(&self, node: u64) -> Option<i32> {
        let mut state = self.lock();
        let (number, backing) = state.backings.remove(&node)?;
        if state.write_slot(number, Slot::default()).is_ok() {
            state.free.push(number);
        }
        Some(backing)
    }

    /// How many opened files a node has.
    pub(crate) fn count(&self, node: u64) -> usize {
        self.lock().counts.get(&node).copied().unwrap_or(0)
    }

    /// Waits until a node has no opened files, and says how many it still has when that takes too long.
    pub(crate) fn wait_unused(&self, node: u64, patience: Duration) -> usize {
        let is_used = |state: &mut State| state.counts.contains_key(&node);
        let waited = self.released.wait_timeout_while(self.lock(), patience, is_used);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.counts.get(&node).copied().unwrap_or(0)
    }

    // Every change is complete before anything that can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read_slots(&mut self) -> io::Result<()> {
        let length = (self.file.metadata()?.len() - size_of::<Header>() as u64) / size_of::<Slot>() as u64;
        self.length = u32::try_from(length).unwrap_or(MAX_OPENS).min(MAX_OPENS);
        let mut bytes = vec![0; self.length as usize * size_of::<Slot>()];
        self.file.read_exact_at(&mut bytes, size_of::<Header>() as u64)?;
        for (number, packed) in (0..).zip(bytes.chunks_exact(size_of::<Slot>())) {
            let slot = Slot::read_from_bytes(packed).expect("chunks have this size");
            if slot.handle == 0 {
                self.free.push(number);
            } else if slot.handle & BACKING != 0 {
                self.backings.insert(slot.node, (number, slot.backing as i32));
            } else {
                self.slots.insert(slot.handle, (number, slot.node));
                *self.counts.entry(slot.node).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Writes a slot to a free place and returns its number.
    fn take_slot(&mut self, slot: Slot) -> Option<u32> {
        let number = self.free.pop().or_else(|| (self.length < MAX_OPENS).then_some(self.length))?;
        if self.write_slot(number, slot).is_err() {
            if number < self.length {
                self.free.push(number);
            }
            return None;
        }
        self.length = self.length.max(number + 1);
        Some(number)
    }

    fn write_slot(&self, number: u32, slot: Slot) -> io::Result<()> {
        let offset = size_of::<Header>() as u64 + u64::from(number) * size_of::<Slot>() as u64;
        self.file.write_all_at(slot.as_bytes(), offset)
    }

    fn forget(&mut self, node: u64) {
        if let Some(count) = self.counts.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_open_files_are_remembered_by_the_next_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("opens");
        let opens = Opens::load(&path, [1; 16]).unwrap();
        assert!(opens.add(10, 5) && opens.add(12, 5) && opens.add(14, 6));
        opens.remove(12);
        drop(opens);

        let opens = Opens::load(&path, [1; 16]).unwrap();
        assert_eq!((opens.count(5), opens.count(6)), (1, 1));
        assert!(opens.add(10, 5), "the kernel asked again");
        assert_eq!(opens.count(5), 1);
        assert!(opens.add(16, 5));
        opens.remove_node(5);
        opens.remove(10);
        assert_eq!((opens.count(5), opens.count(6)), (0, 1));
    }

    #[test]
    fn test_another_mount_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("opens");
        assert!(Opens::load(&path, [1; 16]).unwrap().add(10, 5));
        assert_eq!(Opens::load(&path, [2; 16]).unwrap().count(5), 0);
    }
}
