//! First process of the guests that the tests of `vmm` boot: does the one thing that `aenv_test=` on the kernel
//! command line names. Compiled by `rustc` alone, statically, so the tests need no image.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, ptr, thread};

extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

const RB_POWER_OFF: c_int = 0x4321_FEDC;
const RB_AUTOBOOT: c_int = 0x0123_4567;

fn mount_at(kind: &std::ffi::CStr, target: &std::ffi::CStr) {
    // SAFETY: all pointers are to C strings that outlive the call; this file system type takes no data.
    unsafe { mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
}

#[cfg(target_arch = "x86_64")]
const FINIT_MODULE: c_long = 313;
#[cfg(target_arch = "aarch64")]
const FINIT_MODULE: c_long = 273;

fn load_module(path: &str) {
    let file = fs::File::open(path).expect("the module was packed");
    // SAFETY: the descriptor is open, and the parameters are a C string.
    let outcome = unsafe { syscall(FINIT_MODULE, file.as_raw_fd(), c"".as_ptr(), 0) };
    println!("test-init: {path} {outcome}");
}

fn end(command: c_int) -> ! {
    // SAFETY: the call takes a plain number and does not return when it succeeds.
    unsafe { reboot(command) };
    panic!("the kernel refused to end");
}

const PAGE: usize = 4096;
const PAGES: usize = 24 * 256;

/// Changes a few pages of a large memory in every turn, and looks whether all pages are what the turns have made them:
/// a page that was lost or mixed up with another is noticed, whatever happened to the machine in between.
fn keep_memory() -> ! {
    let mut memory = vec![0_u8; PAGES * PAGE];
    let mut written = vec![0_u64; PAGES];
    for turn in 1_u64.. {
        for step in 0..32 {
            let page = (turn as usize * 7919 + step * 613) % PAGES;
            written[page] = turn;
            memory[page * PAGE..][..8].copy_from_slice(&turn.to_le_bytes());
            memory[page * PAGE + 2048..][..8].copy_from_slice(&(page as u64).to_le_bytes());
        }
        let number = |place: usize| u64::from_le_bytes(memory[place..place + 8].try_into().expect("eight bytes"));
        let is_whole = (0..PAGES).all(|page| {
            let mark = if written[page] == 0 { 0 } else { page as u64 };
            number(page * PAGE) == written[page] && number(page * PAGE + 2048) == mark
        });
        println!("turn {turn} {}", if is_whole { "whole" } else { "DAMAGED" });
        thread::sleep(Duration::from_millis(20));
    }
    unreachable!("turns do not run out")
}

/// What the host finds in the guest's memory by its first words, reads and writes: no device carries it.
#[repr(C, align(4096))]
struct Panel {
    magic: [u8; 32],
    heartbeat: AtomicU64,
    wanted_mib: AtomicU64,
    done: AtomicU64,
}

static PANEL: Panel = Panel {
    magic: *b"aenv-test panel of a guest, v1 \n",
    heartbeat: AtomicU64::new(0),
    wanted_mib: AtomicU64::new(0),
    done: AtomicU64::new(0),
};

/// Beats every millisecond, and changes as many megabytes as the host asks for.
fn obey() -> ! {
    // Written once, so that the page is memory of its own and not of the program's file.
    PANEL.heartbeat.store(1, Ordering::SeqCst);
    thread::spawn(|| loop {
        PANEL.heartbeat.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
    });
    let mut memory = vec![0_u8; 512 << 20];
    println!("test-init: obeying {}", PANEL.magic.len());
    for turn in 1_u64.. {
        let mut wanted = 0;
        while wanted == 0 {
            thread::sleep(Duration::from_millis(1));
            wanted = PANEL.wanted_mib.swap(0, Ordering::SeqCst);
        }
        for page in memory.chunks_exact_mut(PAGE).take(wanted as usize * 256) {
            page[..8].copy_from_slice(&turn.to_le_bytes());
            page[4000..4008].copy_from_slice(&turn.to_le_bytes());
        }
        PANEL.done.fetch_add(1, Ordering::SeqCst);
    }
    unreachable!("turns do not run out")
}

/// Fills much memory and gives it back to the kernel, again and again.
fn fill_and_free() -> ! {
    load_module("/virtio_mmio.ko");
    load_module("/virtio_balloon.ko");
    for turn in 1_u64.. {
        let mut memory = vec![0_u8; 160 << 20];
        memory.chunks_exact_mut(PAGE).for_each(|page| page[0] = turn as u8);
        println!("filled {turn}");
        drop(memory);
        thread::sleep(Duration::from_secs(8));
        println!("freed {turn}");
    }
    unreachable!("turns do not run out")
}

fn main() {
    mount_at(c"proc", c"/proc");
    mount_at(c"sysfs", c"/sys");
    let command_line = fs::read_to_string("/proc/cmdline").expect("proc is mounted");
    let mode = command_line.split_whitespace().find_map(|word| word.strip_prefix("aenv_test=")).unwrap_or("idle");
    println!("test-init: {mode} uptime {}", fs::read_to_string("/proc/uptime").expect("proc is mounted").trim());
    for device in fs::read_dir("/sys/bus/platform/devices").into_iter().flatten().flatten() {
        let name = device.file_name().to_string_lossy().into_owned();
        if name.starts_with("LNRO0005") {
            println!("test-init: device {name}");
        }
    }
    println!("test-init: ready");
    match mode {
        "poweroff" => end(RB_POWER_OFF),
        "reboot" => end(RB_AUTOBOOT),
        "panic" => std::process::exit(1), // the death of the first process is a kernel panic
        "fatal" => {
            println!("aenv-guest: fatal: no root disk");
            end(RB_POWER_OFF)
        }
        "spam" => {
            let line = "spam ".repeat(200) + "\n";
            loop {
                std::io::stdout().write_all(line.as_bytes()).expect("the console takes bytes");
            }
        }
        "memory" => keep_memory(),
        "obey" => obey(),
        "free" => fill_and_free(),
        _ => {
            for tick in 0u64.. {
                println!("tick {tick}");
                thread::sleep(Duration::from_millis(250));
            }
        }
    }
}
