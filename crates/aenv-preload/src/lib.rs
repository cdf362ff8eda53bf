//! Loaded into QEMU by the dynamic linker. It freezes a copy of the process on request, lets the kernel track writes,
//! and keeps balloons from punching holes into memory images. It starts no thread, allocates nothing, and does nothing
//! but system calls: most of it runs in a signal handler.

mod cage;
mod frozen;
mod image;
mod service;
mod tracking;

use libc::{c_char, c_int};

/// Names the socket to listen on. Without it the library does nothing.
const SOCKET_VARIABLE: &core::ffi::CStr = c"AENV_PRELOAD_SOCKET";

extern "C" fn start(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    // SAFETY: called by the linker before `main`, when there is one thread and nobody changes the environment.
    let path = unsafe { libc::getenv(SOCKET_VARIABLE.as_ptr()) };
    if !path.is_null() {
        // SAFETY: `getenv` returned a C string that stays as long as nobody changes the environment.
        service::start(unsafe { core::ffi::CStr::from_ptr(path) });
    }
}

#[used]
#[link_section = ".init_array"]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;
