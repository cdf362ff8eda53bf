//! Memory images: mapped privately by many, read once, written by nobody.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::NonNull;

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use serde_json::json;

use crate::support::{open_file, read_all, Daemon, Dice};

const SIZE: usize = 4 << 20;

/// A private mapping of a whole file.
struct Mapping(NonNull<u8>);

impl Mapping {
    fn new(file: &File) -> Self {
        let length = NonZeroUsize::new(SIZE).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe { mmap(None, length, protection, MapFlags::MAP_PRIVATE, file, 0) }.unwrap();
        Self(address.cast())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, is readable and writable, and belongs to this value alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), SIZE) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows it any more.
        unsafe { munmap(self.0.cast(), SIZE) }.unwrap();
    }
}

/// An image with random content, and the content.
fn image(daemon: &Daemon) -> (PathBuf, Vec<u8>) {
    let disk = daemon.open_disk("source", &[], "w0", Some(SIZE as u64));
    let content = Dice::new(9).bytes(SIZE);
    open_file(&disk).write_all_at(&content, 0).unwrap();
    let layer = daemon.seal("source", "layer", "w1");
    (daemon.open_memory("memory", &[&layer]), content)
}

fn reads(daemon: &Daemon) -> u64 {
    daemon.client().call("stat", json!({ "name": "memory" }))["counters"]["reads"].as_u64().unwrap()
}

#[test]
fn test_the_second_mapping_reads_nothing_and_writes_stay_private() {
    let daemon = Daemon::start();
    let (path, content) = image(&daemon);
    let (first, second) = (open_file(&path), open_file(&path));
    let (mut one, mut two) = (Mapping::new(&first), Mapping::new(&second));
    assert!(one.bytes() == content);
    let before = reads(&daemon);
    assert!(before > 0);
    assert!(two.bytes() == content);
    assert_eq!(reads(&daemon), before, "the pages are shared");
    one.bytes()[..4096].fill(0xaa);
    assert!(two.bytes() == content);
    assert!(read_all(&path) == content);
}

#[test]
fn test_nobody_writes_to_a_memory_image_and_everybody_may_open_it() {
    let daemon = Daemon::start();
    let (path, content) = image(&daemon);
    let file = open_file(&path);
    let refused = file.write_all_at(&[1; 4096], 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(read_all(&path) == content, "a refused write leaves nothing in the page cache");
    // The way to the mount is open to other users only where an operator opens it.
    for directory in [daemon.scratch.path(), &daemon.path("mount")] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(directory, mode).ok();
    }
    let status = Command::new("sh")
        .args(["-c", "exec 3<>\"$0\" && head -c 4096 <&3 >/dev/null"])
        .arg(&path)
        .uid(65_534)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn test_what_was_recorded_is_there_before_it_is_asked_for() {
    let daemon = Daemon::start();
    let (path, content) = image(&daemon);
    let mut client = daemon.client();
    let trace = daemon.path("trace");
    client.call("record", json!({ "name": "memory", "trace_path": trace, "seconds": 1 }));
    let mut page = [0; 4096];
    for offset in [1 << 20, 2 << 20, 3 << 20] {
        File::open(&path).unwrap().read_exact_at(&mut page, offset).unwrap();
    }
    crate::support::wait_until("the recording is written", || trace.exists());
    client.call("close", json!({ "name": "memory", "discard": false }));

    let path = daemon.open_memory("memory", &[&daemon.path("layer")]);
    let file = File::open(path).unwrap();
    let done = client.call("prefetch", json!({ "name": "memory", "trace_path": trace }));
    assert!(done["cached_bytes"].as_u64().unwrap() >= 3 * 4096, "{done}");
    for offset in [1 << 20, 2 << 20, 3 << 20] {
        file.read_exact_at(&mut page, offset).unwrap();
        assert!(page == content[offset as usize..][..4096]);
    }
    assert_eq!(reads(&daemon), 0);
    let refused = client.refuse("prefetch", json!({ "name": "memory", "trace_path": daemon.path("layer") }));
    assert_eq!(refused, "trace_corrupt");
}
