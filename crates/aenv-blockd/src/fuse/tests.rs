//! Requests as the bytes of the kernel, answers as the bytes that it gets, without a mount.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use aenv_layers::{
    BootId, Disk, LayerId, LocalDirectory, NewLayer, PairLocation, Stack, WritableLayer, WritePolicy,
};
use nix::errno::Errno;
use nix::sys::socket::{recv, send, socketpair, AddressFamily, MsgFlags, SockFlag, SockType};
use proptest::prelude::*;
use std::os::fd::AsRawFd;
use tempfile::TempDir;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{
    opcode, open_flag, AnswerHeader, AttributesOut, EntryOut, FallocateIn, InitIn, InitOut, LseekIn,
    LseekOut, OpenIn, OpenOut, ReleaseIn, RequestHeader, SetattrIn, TransferIn, WriteOut, MAJOR, MINOR, ROOT,
    UNIQUE_RESEND,
};
use super::device::Device;
use super::negotiate::negotiate;
use super::nodes::Nodes;
use super::service::{Outcome, Service};
use crate::image::{
    Content, Description, Image, OpenArguments, OverwritePolicy, Use, WritableArguments, WritableDisk,
};

const SIZE: u64 = 1 << 20;
const DISK: u64 = 5;
const MEMORY: u64 = 6;

/// A service with a disk and a memory image, and the kernel's end of its device.
struct Kernel {
    service: Service,
    device: Arc<Device>,
    end: OwnedFd,
    _scratch: TempDir,
}

fn pair() -> (OwnedFd, OwnedFd) {
    // Messages stay whole in it, as they do in /dev/fuse.
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap()
}

impl Kernel {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let nodes = Arc::new(Nodes::load(&scratch.path().join("opens"), [1; 16]).unwrap());
        nodes.insert(Arc::new(image("disk", DISK, Use::Disk, writable(&scratch))));
        let empty = Content::Sealed(Arc::new(Stack::new("empty", Vec::new()).unwrap()));
        nodes.insert(Arc::new(image("memory", MEMORY, Use::Memory, empty)));
        let (ours, end) = pair();
        Self {
            service: Service { nodes, passes_through: false },
            device: Arc::new(Device::new(ours)),
            end,
            _scratch: scratch,
        }
    }

    /// Hands a message to the service.
    fn deliver(&self, message: &[u8]) -> Outcome {
        self.service.serve(&self.device, message, &mut Vec::new())
    }

    /// The next answer, if it is there: its header and what follows.
    fn answer(&self) -> Option<(AnswerHeader, Vec<u8>)> {
        let mut bytes = vec![0; 2 << 20];
        let length = recv(self.end.as_raw_fd(), &mut bytes, MsgFlags::empty()).ok()?;
        bytes.truncate(length);
        let (header, body) = AnswerHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!(header.length as usize, length);
        Some((header, body.to_vec()))
    }

    fn ask(&self, number: u32, node: u64, unique: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        assert_eq!(self.deliver(&message(number, node, unique, body)), Outcome::GoesOn);
        let (header, body) = self.answer().expect("the request is answered at once");
        assert_eq!(header.unique, unique);
        match header.error {
            0 => Ok(body),
            error => Err(Errno::from_raw(-error)),
        }
    }

    fn ask_for<T: FromBytes>(&self, number: u32, node: u64, body: &impl Body) -> Result<T, Errno> {
        let answer = self.ask(number, node, 77, body.as_body())?;
        Ok(T::read_from_bytes(&answer).expect("the answer has the size of its kind"))
    }
}

trait Body {
    fn as_body(&self) -> &[u8];
}

impl<T: IntoBytes + Immutable> Body for T {
    fn as_body(&self) -> &[u8] {
        self.as_bytes()
    }
}

fn message(number: u32, node: u64, unique: u64, body: &[u8]) -> Vec<u8> {
    let length = (size_of::<RequestHeader>() + body.len()) as u32;
    let header = RequestHeader { length, opcode: number, unique, node, ..RequestHeader::default() };
    [header.as_bytes(), body].concat()
}

fn writable(scratch: &TempDir) -> Content {
    let directory = Arc::new(LocalDirectory::open(scratch.path()).unwrap());
    let location = PairLocation { directory, data: "data".into(), index: "index".into() };
    let new = NewLayer {
        id: LayerId([1; 16]),
        parent: LayerId::default(),
        virtual_size: SIZE,
        policy: WritePolicy::default(),
        boot: BootId([1; 16]),
    };
    let top = WritableLayer::create("disk", location, new).unwrap();
    let base = Stack::new("base", Vec::new()).unwrap();
    let disk = Disk::new("disk", Arc::new(top), Arc::new(base));
    Content::Writable(WritableDisk::new(Arc::new(disk)))
}

fn image(name: &str, serial: u64, purpose: Use, content: Content) -> Image {
    let writable = WritableArguments {
        directory: "/nowhere".into(),
        size_bytes: None,
        overwrite: OverwritePolicy::InPlace,
    };
    let opened = OpenArguments {
        name: name.to_owned().try_into().unwrap(),
        layers: Vec::new(),
        writable: (purpose == Use::Disk).then_some(writable),
        plain: None,
        purpose,
        owner: 1000,
    };
    let image = Image::new(Description::new(serial, opened));
    image.settle(Ok(content));
    image
}

#[test]
fn test_names_lead_to_nodes() {
    let kernel = Kernel::new();
    let entry = kernel.ask(opcode::LOOKUP, ROOT, 1, b"disk\0").unwrap();
    let entry = EntryOut::read_from_bytes(&entry).unwrap();
    assert_eq!((entry.node, entry.entry_valid), (DISK, 0));
    assert_eq!((entry.attributes.size, entry.attributes.mode), (SIZE, 0o100_600));
    assert_eq!(kernel.ask(opcode::LOOKUP, ROOT, 1, b"nothing\0"), Err(Errno::ENOENT));
    assert_eq!(kernel.ask(opcode::LOOKUP, ROOT, 1, b"..\0"), Err(Errno::ENOENT));
    let root: AttributesOut = kernel.ask_for(opcode::GETATTR, ROOT, &0_u64).unwrap();
    assert_eq!(root.attributes.mode, 0o040_711);
    let gone: Result<AttributesOut, Errno> = kernel.ask_for(opcode::GETATTR, 99, &0_u64);
    assert_eq!(gone, Err(Errno::ESTALE));
    let listing = TransferIn { size: 4096, ..TransferIn::default() };
    let names = kernel.ask(opcode::READDIR, ROOT, 1, listing.as_bytes()).unwrap();
    assert_eq!(names.len(), 64, "two entries of 24 bytes and a name, each a multiple of 8");
    let behind = TransferIn { offset: MEMORY, ..listing };
    assert_eq!(kernel.ask(opcode::READDIR, ROOT, 1, behind.as_bytes()), Ok(Vec::new()));
}

#[test]
fn test_an_open_that_is_asked_for_again_counts_once() {
    let kernel = Kernel::new();
    let body = OpenIn { flags: libc::O_RDWR as u32, open_flags: 0 };
    let first = kernel.ask(opcode::OPEN, DISK, 40, body.as_bytes()).unwrap();
    let again = kernel.ask(opcode::OPEN, DISK, 40 | UNIQUE_RESEND, body.as_bytes()).unwrap();
    assert_eq!(first, again);
    let opened = OpenOut::read_from_bytes(&first).unwrap();
    assert!(opened.flags & open_flag::DIRECT_IO != 0 && opened.flags & open_flag::KEEP_CACHE == 0);
    let disk = kernel.service.nodes.get(DISK).unwrap();
    assert_eq!(kernel.service.nodes.users(&disk.image), 1);
    let release = ReleaseIn { handle: opened.handle, ..ReleaseIn::default() };
    kernel.ask(opcode::RELEASE, DISK, 42, release.as_bytes()).unwrap();
    kernel.ask(opcode::RELEASE, DISK, 42 | UNIQUE_RESEND, release.as_bytes()).unwrap();
    assert_eq!(kernel.service.nodes.users(&disk.image), 0);

    let opened: OpenOut = kernel.ask_for(opcode::OPEN, MEMORY, &body).unwrap();
    assert!(opened.flags & open_flag::KEEP_CACHE != 0 && opened.flags & open_flag::DIRECT_IO == 0);
}

#[test]
fn test_bytes_go_in_and_come_back() {
    let kernel = Kernel::new();
    let transfer = |offset, size| TransferIn { offset, size, ..TransferIn::default() };
    let body = [transfer(1000, 3).as_bytes(), b"abc"].concat();
    let written = kernel.ask(opcode::WRITE, DISK, 1, &body).unwrap();
    assert_eq!(WriteOut::read_from_bytes(&written).unwrap().size, 3);
    assert_eq!(kernel.ask(opcode::READ, DISK, 1, transfer(999, 5).as_bytes()).unwrap(), b"\0abc\0");
    assert_eq!(kernel.ask(opcode::READ, DISK, 1, transfer(SIZE - 2, 9).as_bytes()).unwrap(), [0, 0]);
    assert_eq!(kernel.ask(opcode::READ, DISK, 1, transfer(0, u32::MAX).as_bytes()), Err(Errno::EINVAL));
    let behind = [transfer(SIZE, 3).as_bytes(), b"abc"].concat();
    assert_eq!(kernel.ask(opcode::WRITE, DISK, 1, &behind), Err(Errno::ENOSPC));
    assert_eq!(kernel.ask(opcode::WRITE, MEMORY, 1, &body), Err(Errno::EROFS));
    let punch = FallocateIn {
        offset: 1001,
        length: 1,
        mode: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
        ..FallocateIn::default()
    };
    kernel.ask(opcode::FALLOCATE, DISK, 1, punch.as_bytes()).unwrap();
    assert_eq!(kernel.ask(opcode::READ, DISK, 1, transfer(1000, 3).as_bytes()).unwrap(), b"a\0c");
    let promise = FallocateIn { mode: 0, ..punch };
    assert_eq!(kernel.ask(opcode::FALLOCATE, DISK, 1, promise.as_bytes()), Err(Errno::EOPNOTSUPP));
    let cut = SetattrIn { valid: super::abi::change::SIZE, ..SetattrIn::default() };
    assert_eq!(kernel.ask(opcode::SETATTR, DISK, 1, cut.as_bytes()), Err(Errno::EPERM));
}

#[test]
fn test_what_waits_is_answered_later() {
    let kernel = Kernel::new();
    let seek = LseekIn { whence: libc::SEEK_HOLE as u32, ..LseekIn::default() };
    kernel.deliver(&message(opcode::LSEEK, DISK, 9, seek.as_bytes()));
    let (header, body) = (0..1000)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            kernel.answer()
        })
        .expect("the answer comes");
    assert_eq!((header.unique, header.error), (9, 0));
    assert_eq!(LseekOut::read_from_bytes(&body).unwrap().offset, 0);
}

#[test]
fn test_the_first_exchange_refuses_old_kernels() {
    for (minor, is_fine) in [(35, false), (36, true), (MINOR + 7, true)] {
        let (ours, end) = pair();
        let offer = InitIn { major: MAJOR, minor, flags: u32::MAX, ..InitIn::default() };
        send(end.as_raw_fd(), &message(opcode::INIT, 0, 2, offer.as_bytes()), MsgFlags::empty()).unwrap();
        assert_eq!(negotiate(&Device::new(ours)).is_ok(), is_fine, "7.{minor}");
        let mut answer = [0; 200];
        let length = recv(end.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
        let (header, body) = AnswerHeader::read_from_prefix(&answer[..length]).unwrap();
        assert_eq!(header.error == 0, is_fine);
        assert_eq!(InitOut::read_from_bytes(body).is_ok(), is_fine);
    }
}

proptest! {
    #[test]
    fn test_any_message_has_one_answer_or_none(
        number in 0u32..60,
        node in prop::sample::select(vec![0, ROOT, DISK, MEMORY, 99, u64::MAX]),
        body in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let kernel = Kernel::new();
        let is_silent =
            [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT].contains(&number);
        kernel.deliver(&message(number, node, 3, &body));
        // These go to threads of the image.
        let may_wait = [opcode::FSYNC, opcode::LSEEK].contains(&number);
        match kernel.answer() {
            Some((header, _)) => prop_assert!(!is_silent && header.unique == 3),
            None => prop_assert!(is_silent || may_wait),
        }
        prop_assert!(may_wait || kernel.answer().is_none());
    }
}
