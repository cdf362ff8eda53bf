//! A simulated machine: files with a page cache over a disk. It can fail or stop at any call, and when the host dies
//! it keeps any legal part of what was not written out.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use aenv_layers::{BootId, Directory, File, ReadAt};

use crate::support::SECTOR;

/// Numbers that look random and are the same in every run.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % limit
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The program dies within the call; a write may be done in part.
    Death,
    /// The call fails with this error number; a write may be done in part.
    Error(i32),
    /// Like `Error`, and so does every later call that writes.
    ErrorFromNowOn(i32),
}

/// What the machine does not write out when asked to, to see that the tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    Data,
    Index,
    Directory,
}

#[derive(Default)]
struct Inode {
    first_name: String,
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Contents of each sector since the last sync.
    pending: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Lengths since the last sync.
    lengths: Vec<usize>,
}

struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<BTreeMap<String, usize>>,
    dice: Dice,
    calls: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
    boot: u8,
    lie: Option<Lie>,
    has_short_calls: bool,
}

/// The machine; clones are the same machine.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Mutex<State>>);

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            dice: Dice::new(seed),
            calls: 0,
            fault: None,
            is_dead: false,
            boot: 1,
            lie: None,
            has_short_calls: false,
        })))
    }

    pub(crate) fn directory(&self) -> Arc<dyn Directory> {
        Arc::new(self.clone())
    }

    pub(crate) fn boot(&self) -> BootId {
        BootId([self.0.lock().unwrap().boot; 16])
    }

    /// Lets the call fail that comes after this many others.
    pub(crate) fn fault_after(&self, calls: usize, fault: Fault) {
        let mut state = self.0.lock().unwrap();
        state.fault = Some((state.calls + calls, fault));
    }

    pub(crate) fn lie(&self, lie: Lie) {
        self.0.lock().unwrap().lie = Some(lie);
    }

    /// Reads and writes do less than they were asked to, as system calls may.
    pub(crate) fn shorten_calls(&self) {
        self.0.lock().unwrap().has_short_calls = true;
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }

    /// A new program starts on a host that never stopped, and nothing fails any more.
    pub(crate) fn restart_program(&self) {
        let mut state = self.0.lock().unwrap();
        state.fault = None;
        state.is_dead = false;
    }

    /// The host dies and comes back: what was not synced is there, or not, or in part.
    pub(crate) fn restart_host(&self) {
        self.restart_program();
        let mut state = self.0.lock().unwrap();
        let state = &mut *state;
        state.boot += 1;
        let pending = std::mem::take(&mut state.pending_names);
        if let Some(last) = pending.len().checked_sub(1) {
            let chosen = state.dice.below(last + 2);
            if let Some(names) = pending.get(chosen) {
                state.durable_names.clone_from(names);
            }
        }
        state.names.clone_from(&state.durable_names);
        for inode in &mut state.inodes {
            inode.crash(&mut state.dice);
        }
    }
}

impl Inode {
    fn note(&mut self, offset: usize, length: usize) {
        for sector in offset / SECTOR..(offset + length).div_ceil(SECTOR) {
            let start = sector * SECTOR;
            let mut bytes = vec![0; SECTOR];
            let available = self.cache.len().min(start + SECTOR).saturating_sub(start);
            bytes[..available].copy_from_slice(&self.cache[start..start + available]);
            self.pending.entry(sector).or_default().push(bytes);
        }
        self.lengths.push(self.cache.len());
    }

    fn sync(&mut self) {
        self.disk.clone_from(&self.cache);
        self.pending.clear();
        self.lengths.clear();
    }

    fn crash(&mut self, dice: &mut Dice) {
        let length = match dice.below(self.lengths.len() + 1) {
            0 => self.disk.len(),
            chosen => {
                // A grown file may have got any part of its new length.
                let (old, new) = (self.disk.len(), self.lengths[chosen - 1]);
                if new > old && dice.chance(50) {
                    old + dice.below(new - old + 1)
                } else {
                    new
                }
            }
        };
        self.disk.resize(length, 0);
        for (sector, versions) in std::mem::take(&mut self.pending) {
            let start = sector * SECTOR;
            if let Some(chosen) = dice.below(versions.len() + 1).checked_sub(1) {
                if start < length {
                    let available = SECTOR.min(length - start);
                    self.disk[start..start + available].copy_from_slice(&versions[chosen][..available]);
                }
            }
        }
        self.lengths.clear();
        self.cache.clone_from(&self.disk);
    }
}

impl State {
    /// Counts a call. The error says how the call fails; a write may then still be done in part.
    fn step(&mut self, is_write: bool) -> io::Result<()> {
        if self.is_dead {
            return Err(io::Error::other("the program is dead"));
        }
        let now = self.calls;
        self.calls += 1;
        match self.fault {
            Some((at, Fault::Death)) if at == now => {
                self.is_dead = true;
                Err(io::Error::other("the program dies here"))
            }
            Some((at, Fault::Error(number))) if at == now => Err(io::Error::from_raw_os_error(number)),
            Some((at, Fault::ErrorFromNowOn(number))) if now >= at && is_write => {
                Err(io::Error::from_raw_os_error(number))
            }
            _ => Ok(()),
        }
    }

    fn shortened(&mut self, length: usize) -> usize {
        if self.has_short_calls && length > 1 {
            1 + self.dice.below(length)
        } else {
            length
        }
    }

    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.names);
        self.pending_names.push(self.names.clone());
    }
}

impl Directory for Machine {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock().unwrap();
        state.step(true)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode { first_name: name.to_owned(), ..Inode::default() });
        state.change_names(|names| {
            names.insert(name.to_owned(), inode);
        });
        Ok(Arc::new(Handle { machine: self.clone(), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock().unwrap();
        state.step(false)?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Handle { machine: self.clone(), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step(true)?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_names(|names| {
            names.remove(from);
            names.insert(to.to_owned(), inode);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step(true)?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_names(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step(true)?;
        if state.lie != Some(Lie::Directory) {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        }
        Ok(())
    }
}

/// Kernels stop a write between pages, so that a part of a large one is whole sectors.
fn whole_sectors(offset: usize, length: usize, count: usize) -> usize {
    let end = (offset + count) / SECTOR * SECTOR;
    if count < length && length > SECTOR && end > offset {
        end - offset
    } else if count < length && length >= SECTOR {
        length
    } else {
        count
    }
}

struct Handle {
    machine: Machine,
    inode: usize,
}

impl ReadAt for Handle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.machine.0.lock().unwrap();
        state.step(false)?;
        let wanted = state.shortened(buffer.len());
        let cache = &state.inodes[self.inode].cache;
        let start = cache.len().min(offset as usize);
        let count = wanted.min(cache.len() - start);
        buffer[..count].copy_from_slice(&cache[start..start + count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.machine.0.lock().unwrap();
        state.step(false)?;
        Ok(state.inodes[self.inode].cache.len() as u64)
    }
}

impl File for Handle {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.machine.0.lock().unwrap();
        let state = &mut *state;
        let was_dead = state.is_dead;
        let outcome = state.step(true);
        let count = match outcome {
            Ok(()) => state.shortened(bytes.len()),
            Err(_) if was_dead => 0,
            Err(_) => state.dice.below(bytes.len() + 1),
        };
        let count = whole_sectors(offset as usize, bytes.len(), count);
        if count > 0 {
            let inode = &mut state.inodes[self.inode];
            let start = offset as usize;
            if inode.cache.len() < start + count {
                inode.cache.resize(start + count, 0);
            }
            inode.cache[start..start + count].copy_from_slice(&bytes[..count]);
            inode.note(start, count);
        }
        outcome.map(|()| count)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.machine.0.lock().unwrap();
        state.step(true)?;
        let name = &state.inodes[self.inode].first_name;
        let lie = if name.starts_with("data") { Lie::Data } else { Lie::Index };
        if state.lie != Some(lie) {
            state.inodes[self.inode].sync();
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.machine.0.lock().unwrap();
        state.step(true)?;
        let inode = &mut state.inodes[self.inode];
        inode.cache.resize(length as usize, 0);
        inode.lengths.push(length as usize);
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.machine.0.lock().unwrap();
        state.step(true)?;
        let inode = &mut state.inodes[self.inode];
        let end = inode.cache.len().min((offset + length) as usize);
        if let Some(range) = inode.cache.get_mut(offset as usize..end) {
            range.fill(0);
            inode.note(offset as usize, end - offset as usize);
        }
        Ok(())
    }
}
