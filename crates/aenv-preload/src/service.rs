//! The socket on which root asks for things, and the signal by which the kernel says that somebody does.

use core::ffi::CStr;
use core::mem::{size_of, zeroed};
use core::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};

use crate::{cage, frozen, tracking};

/// A real-time signal that QEMU does not use; these are queued, so that no request is overlooked.
const REQUEST_SIGNAL: c_int = 40;
/// How long the monitor's main loop may wait for the words of somebody who has connected.
const PATIENCE: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const F_OWNER_TID: c_int = 0;

static LISTENER: AtomicI32 = AtomicI32::new(-1);

/// What a client may ask for.
#[repr(C)]
struct Request {
    verb: u64,
    address: u64,
    length: u64,
}

const FREEZE: u64 = 1;
const TRACK: u64 = 2;

/// The answer: 0 or an error number, and the process that was made.
#[repr(C)]
struct Reply {
    error: i32,
    pid: i32,
}

/// `struct f_owner_ex` of the kernel.
#[repr(C)]
struct Owner {
    kind: c_int,
    thread: libc::pid_t,
}

/// Listens, and closes the cage. The server sees by the socket whether that has worked: it appears last.
pub(crate) fn start(path: &CStr) {
    // SAFETY: system calls on values that live for the length of each call.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let listener = libc::socket(libc::AF_UNIX, kind, 0);
        LISTENER.store(listener, Ordering::Relaxed);
        let is_ready = listener >= 0 && cage::close() && summon(listener) && bind(listener, path);
        if !is_ready {
            libc::close(listener);
        }
    }
}

/// Has the kernel send the signal to this thread, which becomes QEMU's main loop, whenever somebody connects.
unsafe fn summon(listener: c_int) -> bool {
    // SAFETY: the handler does nothing but system calls, and every structure is complete.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = serve_waiting as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let owner = Owner { kind: F_OWNER_TID, thread: libc::syscall(libc::SYS_gettid) as libc::pid_t };
        let flags = libc::O_NONBLOCK | libc::O_ASYNC;
        libc::sigaction(REQUEST_SIGNAL, &action, core::ptr::null_mut()) == 0
            && libc::fcntl(listener, F_SETOWN_EX, &owner) == 0
            && libc::fcntl(listener, F_SETSIG, REQUEST_SIGNAL) == 0
            && libc::fcntl(listener, libc::F_SETFL, flags) == 0
    }
}

unsafe fn bind(listener: c_int, path: &CStr) -> bool {
    // SAFETY: the address is a complete structure of the length that is passed.
    unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.to_bytes();
        if bytes.len() >= address.sun_path.len() {
            return false;
        }
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = *byte as libc::c_char;
        }
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        libc::bind(listener, (&raw const address).cast(), length) == 0 && libc::listen(listener, 4) == 0
    }
}

extern "C" fn serve_waiting(_: c_int) {
    // SAFETY: system calls only. What they do to `errno` is undone, since the interrupted code may be looking at it.
    unsafe {
        let error = *libc::__errno_location();
        loop {
            let client = libc::accept4(
                LISTENER.load(Ordering::Relaxed),
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            );
            if client < 0 {
                break;
            }
            serve(client);
            libc::close(client);
        }
        *libc::__errno_location() = error;
    }
}

unsafe fn serve(client: c_int) {
    // SAFETY: both structures are plain numbers; the kernel reads and writes no more than their size.
    unsafe {
        let mut request: Request = zeroed();
        let length = size_of::<Request>();
        if !is_root(client) || libc::recv(client, (&raw mut request).cast(), length, 0) != length as isize {
            return;
        }
        let outcome = match request.verb {
            FREEZE => frozen::freeze(client, request.address, request.length),
            TRACK => tracking::track(request.address, request.length).map(|()| 0),
            _ => Err(libc::EINVAL),
        };
        let reply = match outcome {
            Ok(pid) => Reply { error: 0, pid },
            Err(error) => Reply { error, pid: 0 },
        };
        libc::send(client, (&raw const reply).cast(), size_of::<Reply>(), libc::MSG_NOSIGNAL);
    }
}

/// Whether the client is root, who could do all this anyway. Sets how long its words are waited for.
unsafe fn is_root(client: c_int) -> bool {
    // SAFETY: complete structures, and their sizes.
    unsafe {
        let mut peer: libc::ucred = zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let known = libc::getsockopt(
            client,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        );
        let patience: *const c_void = core::ptr::from_ref(&PATIENCE).cast();
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        known == 0
            && peer.uid == 0
            && libc::setsockopt(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, patience, size) == 0
    }
}
