//! Any log over a data file is a writable layer that reads, writes, compacts and seals, or none.
#![no_main]

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use aenv_layers::{
    BootId, Directory, File, LayerId, Limits, Memory, NewLayer, OpenLayer, PairLocation, Stack, View,
    WritableLayer, WritePolicy,
};
use libfuzzer_sys::fuzz_target;

/// Files in memory by name.
struct Files(Mutex<HashMap<String, Arc<Memory>>>);

impl Files {
    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, Arc<Memory>>) -> Option<T>) -> io::Result<T> {
        change(&mut self.0.lock().expect("nobody panics")).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Directory for Files {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = Arc::new(Memory::default());
        self.with(|files| Some(files.insert(name.to_owned(), Arc::clone(&file))))?;
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.with(|files| files.get(name).cloned()).map(|file| file as _)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|files| files.remove(from).map(|file| drop(files.insert(to.to_owned(), file))))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|files| files.remove(name)).map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the marks begin in the index file; what is before them names the layer.
const MARKS: u64 = 1024;

/// Sectors of the data file that records may point to.
const DATA_SECTORS: u64 = 64;

const SIZE: u64 = 64 << 10;
const BOOT: BootId = BootId([1; 16]);

/// The input replaces marks and records of a layer: without valid headers nothing beyond them would be reached.
fuzz_target!(|bytes: &[u8]| {
    let location = PairLocation {
        directory: Arc::new(Files(Mutex::new(HashMap::new()))),
        data: "data".to_owned(),
        index: "index".to_owned(),
    };
    let policy = WritePolicy::default();
    let new =
        NewLayer { id: LayerId([1; 16]), parent: LayerId::NONE, virtual_size: SIZE, policy, boot: BOOT };
    drop(WritableLayer::create("fuzz", location.clone(), new).expect("memory takes files"));
    let open = |name: &str| location.directory.open(name).expect("it was created");
    open("data").set_length(4096 + DATA_SECTORS * 512).expect("memory has a length");
    open("index").write_at(MARKS, bytes).expect("memory takes writes");
    let options = OpenLayer { inherited_size: SIZE, policy, boot: BOOT, limits: Limits::default() };
    let Ok(layer) = WritableLayer::open("fuzz", location, options) else { return };
    let mut bytes = vec![0; SIZE as usize];
    layer.read(0, &mut bytes).expect("records were checked against the data");
    layer.write(4096, &[1; 4096]).expect("memory takes writes");
    layer.zero(512, 512).expect("memory takes discards");
    layer.compact_index().expect("what was opened can be compacted");
    let sealed = layer.seal().expect("what was opened can be sealed");
    let stack = Stack::new("fuzz", vec![Arc::new(sealed)]).expect("one layer is a stack");
    let mut after = vec![0; SIZE as usize];
    stack.read(0, &mut after).expect("a sealed layer reads");
    let mut now = vec![0; SIZE as usize];
    layer.read(0, &mut now).expect("a frozen layer reads");
    assert!(now == after, "sealing changed the content");
});
