//! Finding the entries of a sorted index that touch a range.

use super::Entry;
use crate::extent::Extent;

/// The entries that overlap the extent, clipped to it, in order.
pub(crate) fn overlapping(entries: &[Entry], extent: Extent) -> impl Iterator<Item = Entry> + '_ {
    let first = entries.partition_point(|entry| entry.end() <= extent.start);
    entries[first..]
        .iter()
        .take_while(move |entry| entry.start() < extent.end())
        .map(move |entry| entry.clipped(extent.start, extent.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_overlapping_parts_are_found() {
        let entries = [Entry::with_data(2, 4, 8), Entry::zeroed(6, 2, 12), Entry::with_data(20, 5, 12)];
        let find = |start, length| overlapping(&entries, Extent { start, length }).collect::<Vec<_>>();
        assert_eq!(find(0, 2), []);
        assert_eq!(find(3, 4), [Entry::with_data(3, 3, 9), Entry::zeroed(6, 1, 12)]);
        assert_eq!(find(8, 12), []);
        assert_eq!(find(24, 100), [Entry::with_data(24, 1, 16)]);
        assert_eq!(find(25, 1), []);
    }
}
