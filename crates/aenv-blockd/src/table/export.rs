//! The verb `export`: what an image shows now, as one sealed file. Readers go on; writes wait while it is copied.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aenv_layers::{
    bridge_gaps, commit, export, flatten, Content as Kind, LayerError, LayerId, LayerSummary, LocalFile,
    NewSealed, Sink, View, Wrapping, ZfileOptions, SECTOR_SIZE,
};

use super::open::check_path;
use super::open_image::OpenImage;
use super::{pair, Table};
use crate::digest;
use crate::image::{Content, ImageName, WritableDisk};
use crate::refusal::Refusal;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What to write, and how.
#[derive(Clone, Debug)]
pub(crate) struct ExportOrder {
    pub(crate) image: ImageName,
    pub(crate) path: PathBuf,
    /// Compress it, and pack it as registries expect.
    pub(crate) is_packed: bool,
    /// All layers as one, and not the writable one alone.
    pub(crate) flattens: bool,
    /// The bytes of the disk, with holes, instead of a layer.
    pub(crate) is_plain: bool,
}

/// What was written.
pub(crate) struct Exported {
    pub(crate) size_bytes: u64,
    pub(crate) digest: String,
}

impl Table {
    /// Writes the file, durably. One that exists is replaced.
    pub(crate) fn export(&self, order: &ExportOrder) -> Result<Exported, Refusal> {
        check_path(&order.path)?;
        let open = self.get(&order.image)?;
        self.collect_writes(&open)?;
        let mut part = order.path.as_os_str().to_owned();
        part.push(".part");
        let part = Path::new(&part);
        let outcome = write_part(&open, order, part).and_then(|()| {
            let digest = digest::of_file(part).map_err(Refusal::file("read", part))?;
            let size_bytes = fs::metadata(part).map_err(Refusal::file("look at", part))?.len();
            fs::rename(part, &order.path).map_err(Refusal::file("create", &order.path))?;
            pair::sync_parent(&order.path)?;
            Ok(Exported { size_bytes, digest })
        });
        if outcome.is_err() {
            // The first failure is the one to report.
            let _ = fs::remove_file(part);
        }
        outcome
    }
}

fn write_part(open: &OpenImage, order: &ExportOrder, part: &Path) -> Result<(), Refusal> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Refusal::file("remove", part)(error));
        }
        _ => {}
    }
    let content = open.content()?;
    if order.is_plain {
        return write_plain(content, part);
    }
    let file = LocalFile::create(part).map_err(Refusal::file("create", part))?;
    let wrapping =
        Wrapping { compression: order.is_packed.then(ZfileOptions::default), archive: order.is_packed };
    let name = part.to_string_lossy();
    export(&name, Arc::new(file), wrapping, |sink| write_layer(content, order.flattens, sink))?;
    Ok(())
}

fn write_layer(content: &Content, flattens: bool, sink: &mut dyn Sink) -> Result<LayerSummary, LayerError> {
    match content {
        Content::Sealed(stack) => flatten(stack, whole(stack.size()), sink, &mut go_on),
        Content::Plain(file) => write_view(file, sink),
        Content::Writable(disk) if flattens => write_disk(disk, sink),
        Content::Writable(disk) => {
            let disk = disk.disk();
            let top = disk.top();
            let parent = disk.base().layers().last().map(|layer| layer.id()).unwrap_or_default();
            let new = NewSealed { id: top.id(), parent, ..whole(disk.size()) };
            top.commit(new, sink, &mut go_on)
        }
    }
}

/// All that a disk shows at this moment.
fn write_disk(disk: &WritableDisk, sink: &mut dyn Sink) -> Result<LayerSummary, LayerError> {
    let _still = disk.hold_writes();
    write_view(disk.disk().as_ref(), sink)
}

fn write_view(view: &dyn View, sink: &mut dyn Sink) -> Result<LayerSummary, LayerError> {
    let pieces = bridge_gaps(&view.pieces(0, view.size())?);
    commit(view, &pieces, whole(view.size()), sink, &mut go_on)
}

/// The bytes themselves; what no layer holds stays a hole.
fn write_plain(content: &Content, part: &Path) -> Result<(), Refusal> {
    let _still = match content {
        Content::Writable(disk) => Some(disk.hold_writes()),
        _ => None,
    };
    let view = content.view();
    let file =
        File::options().write(true).create_new(true).open(part).map_err(Refusal::file("create", part))?;
    file.set_len(view.size()).map_err(Refusal::file("write", part))?;
    let mut buffer = vec![0; COPY_BYTES];
    for piece in view.pieces(0, view.size())?.iter().filter(|piece| piece.content == Kind::Data) {
        let (mut at, end) = (piece.extent.offset(), piece.extent.end() * SECTOR_SIZE);
        while at < end {
            let bytes = &mut buffer[..COPY_BYTES.min((end - at) as usize)];
            view.read(at, bytes)?;
            file.write_all_at(bytes, at).map_err(Refusal::file("write", part))?;
            at += bytes.len() as u64;
        }
    }
    file.sync_all().map_err(Refusal::file("write out", part))
}

fn whole(virtual_size: u64) -> NewSealed {
    NewSealed { id: LayerId::default(), virtual_size, detect_zeroes: true, ..NewSealed::default() }
}

fn go_on(_bytes: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
