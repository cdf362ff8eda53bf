//! Builders that the tests share.

use std::ops::ControlFlow;
use std::sync::Arc;

use aenv_layers::{
    export, BootId, Directory, LayerError, LayerId, LayerSummary, Limits, Memory, NewLayer, OpenLayer,
    Overwrite, PairLocation, ReadAt, SealedLayer, Sink, View, Wrapping, WritableLayer, WritePolicy,
};

pub(crate) const SECTOR: usize = 512;
pub(crate) const MIB: u64 = 1 << 20;

/// The identifiers that the golden vectors use.
pub(crate) fn id(number: u8) -> LayerId {
    format!("000000A{number}-0000-4000-8000-00000000000{number}").parse().unwrap()
}

/// A watcher that lets the work go on.
pub(crate) fn go_on(_bytes: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub(crate) fn source(bytes: &[u8]) -> Arc<dyn ReadAt> {
    Arc::new(Memory::new(bytes.to_vec()))
}

pub(crate) fn open(bytes: &[u8]) -> Arc<SealedLayer> {
    Arc::new(SealedLayer::open("sealed", source(bytes), &Limits::default()).unwrap())
}

/// Writes a layer into memory.
pub(crate) fn build(
    wrapping: Wrapping,
    write: impl FnOnce(&mut dyn Sink) -> Result<LayerSummary, LayerError>,
) -> Vec<u8> {
    let file = Arc::new(Memory::default());
    export("new", Arc::clone(&file) as _, wrapping, write).unwrap();
    file.to_vec()
}

pub(crate) fn read_all(view: &dyn View) -> Vec<u8> {
    read(view, 0, view.size() as usize)
}

pub(crate) fn read(view: &dyn View, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xcc; length];
    view.read(offset, &mut bytes).unwrap();
    bytes
}

/// Both files of a pair in a directory.
pub(crate) fn pair(directory: &Arc<dyn Directory>, number: usize) -> PairLocation {
    PairLocation {
        directory: Arc::clone(directory),
        data: format!("data-{number}"),
        index: format!("index-{number}"),
    }
}

pub(crate) const APPEND: WritePolicy = WritePolicy { overwrite: Overwrite::Append, remember_dead: true };
pub(crate) const IN_PLACE: WritePolicy = WritePolicy { overwrite: Overwrite::InPlace, remember_dead: true };
pub(crate) const BOOT: BootId = BootId([7; 16]);

pub(crate) fn create(
    location: PairLocation,
    virtual_size: u64,
    policy: WritePolicy,
    boot: BootId,
) -> Result<WritableLayer, LayerError> {
    let new = NewLayer { id: id(3), parent: id(2), virtual_size, policy, boot };
    WritableLayer::create("writable", location, new)
}

pub(crate) fn reopen(
    location: PairLocation,
    policy: WritePolicy,
    boot: BootId,
) -> Result<WritableLayer, LayerError> {
    let options = OpenLayer { inherited_size: MIB, policy, boot, limits: Limits::default() };
    WritableLayer::open("writable", location, options)
}
