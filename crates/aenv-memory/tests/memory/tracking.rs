//! Captures of memory whose writes the kernel tracks: each holds what was written since the one before.

use std::fs;

use aenv_memory::{scan, Base, Changes, MemoryError, Region};
use tempfile::tempdir;

use crate::support::{contents, page_bytes, stack, this_process, write, Frozen, Mapping, PAGE};

/// What the preload library does in a monitor: the descriptor must stay open.
fn track(region: Region) -> i32 {
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const ASYNCHRONOUS: u64 = 1 << 15;
    const WRITE_PROTECT: u64 = 1 << 1;
    let mut agreement = [0xaa_u64, ASYNCHRONOUS, 0];
    let mut registration = [region.address(), region.length(), WRITE_PROTECT, 0];
    // SAFETY: both requests read and write exactly these arrays, which are as long as the kernel's structures.
    unsafe {
        let tracker = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) as i32;
        assert!(tracker >= 0);
        assert_eq!(libc::ioctl(tracker, API as libc::Ioctl, agreement.as_mut_ptr()), 0);
        assert_eq!(libc::ioctl(tracker, REGISTER as libc::Ioctl, registration.as_mut_ptr()), 0);
        tracker
    }
}

#[test]
fn test_untracked_memory_is_an_error_and_no_empty_capture() {
    let memory = Mapping::anonymous(4);
    memory.fill(0, 1);
    for changes in [Changes::SinceLastScan, Changes::SinceStartAndTrack] {
        let outcome = scan(&this_process(), memory.region(), changes);
        assert!(matches!(outcome, Err(MemoryError::NotTracked { .. })), "{outcome:?}");
    }
}

#[test]
fn test_each_capture_holds_what_was_written_since_the_one_before() {
    let directory = tempdir().unwrap();
    let image = directory.path().join("image");
    fs::write(&image, vec![0x11; 4000 * PAGE]).unwrap();
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    for memory in [Mapping::over(&file, 4000), Mapping::anonymous(4000)] {
        track(memory.region());
        let process = this_process();
        (0..4000).for_each(|page| memory.fill(page, (page % 250) as u8));
        let mut layers = Vec::new();
        for generation in 0..5_usize {
            let changes = if generation == 0 { Changes::SinceStartAndTrack } else { Changes::SinceLastScan };
            let pages = scan(&process, memory.region(), changes).unwrap();
            assert_eq!(pages.count(), if generation == 0 { 4000 } else { 11 });
            // The copy is taken from a frozen process, whose tracking does not concern the original.
            let frozen = Frozen::start();
            (0..11).for_each(|page| memory.fill(page * 300 + generation, 0xF0 + generation as u8));
            let path = directory.path().join(format!("m{generation}"));
            let base = if generation == 0 { Base::Nothing } else { Base::Layers };
            write(&crate::support::open(frozen.0), &memory, &pages, base, &path).unwrap();
            layers.push(path);
        }
        let pages = scan(&process, memory.region(), Changes::SinceLastScan).unwrap();
        let path = directory.path().join("last");
        write(&process, &memory, &pages, Base::Layers, &path).unwrap();
        layers.push(path);
        assert_eq!(page_bytes(&stack(&layers)), contents(&memory));
        layers.iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}
