//! Lines on the guest's console, which the host keeps as the serial log. Never fails: there is nobody else to tell.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Makes the console our standard streams: an initramfs without a console node starts us without any.
pub(super) fn open() {
    let Ok(console) = OpenOptions::new().read(true).write(true).open("/dev/console") else { return };
    for number in 0..=2 {
        if console.as_raw_fd() != number {
            // SAFETY: both descriptors are plain numbers; replacing our own standard streams is the purpose.
            unsafe { libc::dup2(console.as_raw_fd(), number) };
        }
    }
    if console.as_raw_fd() <= 2 {
        std::mem::forget(console);
    }
}

/// Prints one line.
pub(super) fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "aenv-guest: {line}");
}
