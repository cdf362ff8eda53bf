//! The mappings of a process, as the kernel lists them. What does not parse counts as foreign.

use std::fs::File;
use std::io::Read;

use crate::error::MemoryError;
use crate::process::{inspect, Region};

/// A monitor has a few hundred mappings; one that was taken over may have sixty thousand.
const LONGEST_LIST: u64 = 32 << 20;

/// Reads the list of a process.
pub(crate) fn read(pid: i32) -> Result<String, MemoryError> {
    let mut bytes = Vec::new();
    let file =
        File::open(format!("/proc/{pid}/maps")).map_err(|error| inspect(pid, "the mappings", error))?;
    file.take(LONGEST_LIST).read_to_end(&mut bytes).map_err(|error| inspect(pid, "the mappings", error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first address of the region that is not private writable memory.
pub(crate) fn find_foreign(list: &str, region: Region) -> Option<u64> {
    let mut at = region.address();
    for (start, end, permissions) in list.lines().filter_map(parse_line) {
        if end <= at {
            continue;
        }
        if start > at || !(permissions.starts_with("rw") && permissions.ends_with('p')) {
            return Some(at);
        }
        at = end;
        if at >= region.end() {
            return None;
        }
    }
    Some(at)
}

fn parse_line(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-5000 rw-p 00000000 08:01 7 /image (deleted)
5000-6000 r--p 00000000 00:00 0
7000-8000 rw-s 00000000 00:00 0 [anon: x]
nonsense
8000-9000
";

    fn foreign(address: u64, length: u64) -> Option<u64> {
        find_foreign(LIST, Region::new(address, length).unwrap())
    }

    #[test]
    fn test_neighbouring_private_mappings_are_one_region() {
        assert_eq!(foreign(0x1000, 0x4000), None);
        assert_eq!(foreign(0x2000, 0x1000), None);
    }

    #[test]
    fn test_holes_and_shared_or_read_only_memory_are_foreign() {
        assert_eq!(foreign(0x4000, 0x2000), Some(0x5000));
        assert_eq!(foreign(0x6000, 0x1000), Some(0x6000));
        assert_eq!(foreign(0x7000, 0x1000), Some(0x7000));
        assert_eq!(foreign(0x8000, 0x1000), Some(0x8000));
        assert_eq!(find_foreign("", Region::new(0x1000, 0x1000).unwrap()), Some(0x1000));
    }
}
