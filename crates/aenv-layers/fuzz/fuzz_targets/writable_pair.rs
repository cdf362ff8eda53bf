//! Any two files are a writable layer that reads, writes, compacts and seals, or none.
#![no_main]

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use aenv_layers::{
    BootId, Directory, File, Limits, Memory, OpenLayer, PairLocation, View, WritableLayer, WritePolicy,
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

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (data, index) = input;
    let files = HashMap::from([
        ("data".to_owned(), Arc::new(Memory::new(data))),
        ("index".to_owned(), Arc::new(Memory::new(index))),
    ]);
    let location = PairLocation {
        directory: Arc::new(Files(Mutex::new(files))),
        data: "data".to_owned(),
        index: "index".to_owned(),
    };
    let options = OpenLayer {
        inherited_size: 1 << 20,
        policy: WritePolicy::default(),
        boot: BootId([1; 16]),
        limits: Limits::default(),
    };
    let Ok(layer) = WritableLayer::open("fuzz", location, options) else { return };
    let mut buffer = vec![0; layer.size().min(1 << 20) as usize];
    let _ = layer.read(0, &mut buffer);
    if layer.size() >= 4096 {
        layer.write(0, &[1; 4096]).expect("memory takes writes");
        layer.zero(512, 512).expect("memory takes discards");
    }
    layer.compact_index().expect("what was opened can be compacted");
    layer.seal().expect("what was opened can be sealed");
});
