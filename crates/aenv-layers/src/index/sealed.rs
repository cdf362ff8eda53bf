//! The index of a sealed layer: checked when it comes from a file, packed when it goes into one.

use super::Entry;
use crate::error::Damage;
use crate::limits::{FIRST_DATA_SECTOR, MAX_SECTORS, SECTOR_SIZE};

/// Unpacks and checks a whole index that begins at byte `index_offset` of its file. Damage comes with its offset.
pub(crate) fn parse_sealed(bytes: &[u8], index_offset: u64) -> Result<Vec<Entry>, (u64, Damage)> {
    let data_end = index_offset / SECTOR_SIZE;
    let mut entries = Vec::with_capacity(bytes.len() / Entry::SIZE);
    let mut end = 0;
    for (position, packed) in bytes.chunks_exact(Entry::SIZE).enumerate() {
        let entry = Entry::from_bytes(packed.try_into().expect("chunks have this size")).in_layer(0);
        if entry.is_padding() {
            continue;
        }
        let damaged = |damage| (index_offset + (position * Entry::SIZE) as u64, damage);
        if entry.length() == 0 || entry.end() > MAX_SECTORS {
            return Err(damaged(Damage::EntryRange));
        }
        if entry.start() < end {
            return Err(damaged(Damage::IndexOrder));
        }
        if !entry.is_within(MAX_SECTORS, FIRST_DATA_SECTOR, data_end) {
            return Err(damaged(Damage::EntryTarget));
        }
        end = entry.end();
        entries.push(entry);
    }
    Ok(entries)
}

/// Packs entries for a file; the number of a layer is a matter of memory only and written as zero.
pub(crate) fn serialise(entries: &[Entry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.in_layer(0).to_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[Entry]) -> Result<Vec<Entry>, (u64, Damage)> {
        parse_sealed(&serialise(entries), 8192)
    }

    #[test]
    fn test_padding_is_dropped_and_layers_are_reset() {
        let kept = Entry::with_data(0, 8, 8);
        assert_eq!(parse(&[Entry::PADDING, kept.in_layer(9), Entry::PADDING]), Ok(vec![kept]));
        assert_eq!(parse_sealed(&[0xff; 16], 8192), Ok(vec![]));
    }

    #[test]
    fn test_entries_must_be_sorted_disjoint_and_inside() {
        let first = Entry::with_data(4, 4, 8);
        assert_eq!(parse(&[first, Entry::with_data(7, 1, 8)]), Err((8208, Damage::IndexOrder)));
        assert_eq!(parse(&[first, Entry::with_data(3, 1, 8)]), Err((8208, Damage::IndexOrder)));
        assert_eq!(parse(&[Entry::with_data(0, 1, 7)]), Err((8192, Damage::EntryTarget)));
        assert_eq!(parse(&[Entry::with_data(0, 2, 15)]), Err((8192, Damage::EntryTarget)));
        assert_eq!(parse(&[Entry::with_data(0, 1, 15), Entry::zeroed(1, 9, 16)]).map(|all| all.len()), Ok(2));
        assert_eq!(parse(&[Entry::zeroed(1, 9, 17)]), Err((8192, Damage::EntryTarget)));
        assert_eq!(parse_sealed(&[0; 16], 8192), Err((8192, Damage::EntryRange)));
    }
}
