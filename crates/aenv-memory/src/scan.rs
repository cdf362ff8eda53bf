//! Which pages of a region are the process's own, or were written since the last scan, as the kernel knows it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::error::MemoryError;
use crate::process::{inspect, Process, Region};
use crate::runs::{PageRun, Pages, PAGE_SIZE};

/// Which pages a scan looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Pages that differ from the file below the region, or from zeros where there is none.
    SinceStart,
    /// The same, and from now on writes are tracked. Fails unless the region was registered for it.
    SinceStartAndTrack,
    /// Pages that were written since the last scan that tracks. The next such scan begins here.
    SinceLastScan,
}

const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO_PAGE: u64 = 1 << 5;
const PROTECT_MATCHING: u64 = 1 << 0;
const REQUIRE_TRACKING: u64 = 1 << 1;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
const REGIONS_AT_ONCE: usize = 4096;

/// `struct page_region` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of the kernel.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    inverted: u64,
    required: u64,
    any_of: u64,
    returned: u64,
}

/// Finds the pages of the region. Stop whoever writes to it: a page that changes meanwhile may be found or not.
pub fn scan(process: &Process, region: Region, changes: Changes) -> Result<Pages, MemoryError> {
    match scan_by_kernel(process, region, changes) {
        Err(error) if changes == Changes::SinceStart && is_unknown(&error) => scan_by_hand(process, region),
        other => other,
    }
}

/// Kernels before 6.7 do not know the request.
fn is_unknown(error: &MemoryError) -> bool {
    error.os_error().is_some_and(|error| matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)))
}

fn scan_by_kernel(process: &Process, region: Region, changes: Changes) -> Result<Pages, MemoryError> {
    let mut found = vec![PageRegion::default(); REGIONS_AT_ONCE];
    let mut pages = Pages::default();
    let mut at = region.address();
    while at < region.end() {
        let mut arguments = arguments(changes);
        arguments.start = at;
        arguments.end = region.end();
        arguments.regions = found.as_mut_ptr() as u64;
        arguments.region_count = found.len() as u64;
        // SAFETY: the kernel writes at most `region_count` entries to `found` and the fields of `arguments`, both of
        // which live and are borrowed by nobody else; it reads and protects pages of the other process only.
        let count = unsafe { libc::ioctl(process.pagemap().as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
        if count < 0 {
            return Err(explain(process.pid(), io::Error::last_os_error()));
        }
        for part in &found[..count as usize] {
            let first = (part.start - region.address()) / PAGE_SIZE;
            pages.push(PageRun { first, count: (part.end - part.start) / PAGE_SIZE });
        }
        // `walk_end` would tell an older position when the kernel filled its own buffer in between.
        at = match &found[..count as usize] {
            [.., last] if count as usize == found.len() => last.end,
            _ => region.end(),
        };
    }
    Ok(pages)
}

fn arguments(changes: Changes) -> ScanArguments {
    let flags = match changes {
        Changes::SinceStart => 0,
        Changes::SinceStartAndTrack | Changes::SinceLastScan => PROTECT_MATCHING | REQUIRE_TRACKING,
    };
    let written = if changes == Changes::SinceLastScan { IS_WRITTEN } else { 0 };
    // A page of the file below is no change, nor is a page that was only read and so is the kernel's page of zeros.
    let absent = IS_FILE | IS_ZERO_PAGE;
    ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        flags,
        inverted: absent,
        required: absent | written,
        any_of: IS_PRESENT | IS_SWAPPED,
        returned: IS_PRESENT,
        ..ScanArguments::default()
    }
}

fn explain(pid: i32, error: io::Error) -> MemoryError {
    match error.raw_os_error() {
        Some(libc::EPERM) => MemoryError::NotTracked { pid },
        _ => inspect(pid, "the pages", error),
    }
}

const PAGES_AT_ONCE: u64 = 8192;
const ENTRY_IS_FILE: u64 = 1 << 61;
const ENTRY_IS_THERE: u64 = (1 << 62) | (1 << 63);

/// Reads the eight bytes that every kernel has for each page.
fn scan_by_hand(process: &Process, region: Region) -> Result<Pages, MemoryError> {
    let mut pages = Pages::default();
    let total = region.length() / PAGE_SIZE;
    let mut buffer = vec![0; (PAGES_AT_ONCE * 8) as usize];
    let mut first = 0;
    while first < total {
        let bytes = &mut buffer[..((total - first).min(PAGES_AT_ONCE) * 8) as usize];
        let offset = region.address_of(first) / PAGE_SIZE * 8;
        process
            .pagemap()
            .read_exact_at(bytes, offset)
            .map_err(|error| inspect(process.pid(), "the pages", error))?;
        for (number, entry) in (first..).zip(bytes.chunks_exact(8)) {
            let entry = u64::from_ne_bytes(entry.try_into().expect("chunks have eight bytes"));
            if entry & ENTRY_IS_THERE != 0 && entry & ENTRY_IS_FILE == 0 {
                pages.push(PageRun { first: number, count: 1 });
            }
        }
        first += bytes.len() as u64 / 8;
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_requests_have_the_size_that_the_kernel_expects() {
        assert_eq!(size_of::<ScanArguments>(), 96);
        assert_eq!(size_of::<PageRegion>(), 24);
    }
}
