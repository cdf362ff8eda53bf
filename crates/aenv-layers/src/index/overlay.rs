//! Merging the indices of a stack: what a higher layer defines hides what lies below.

use super::Entry;

/// Lays `top` over `bottom`. Both are sorted and disjoint, and so is the result, which has at most
/// `2 * top + bottom` entries.
pub(crate) fn overlay(top: &[Entry], bottom: &[Entry]) -> Vec<Entry> {
    let mut merged = Vec::with_capacity(top.len() + bottom.len());
    overlay_into(&mut merged, top, bottom);
    merged
}

fn overlay_into(merged: &mut Vec<Entry>, top: &[Entry], bottom: &[Entry]) {
    let mut below = bottom.iter().copied();
    let mut pending = below.next();
    for &entry in top {
        while let Some(lower) = pending {
            if lower.start() >= entry.end() {
                break;
            }
            if lower.start() < entry.start() {
                merged.push(lower.clipped(0, entry.start()));
            }
            if lower.end() > entry.end() {
                pending = Some(lower.clipped(entry.end(), u64::MAX));
                break;
            }
            pending = below.next();
        }
        merged.push(entry);
    }
    merged.extend(pending);
    merged.extend(below);
}

/// Merges the indices of layers from the bottom up, each entry numbered by its layer. Neighbours are merged pairwise,
/// so that each entry is touched a logarithmic number of times; two buffers take turns, because fresh memory costs
/// more than the merging.
pub(crate) fn overlay_all(layers: &[&[Entry]]) -> Vec<Entry> {
    let mut merged: Vec<Entry> = Vec::with_capacity(layers.iter().map(|entries| entries.len()).sum());
    let mut ends = Vec::with_capacity(layers.len());
    for (entries, number) in layers.iter().zip(0u8..=u8::MAX) {
        merged.extend(entries.iter().map(|entry| entry.in_layer(number)));
        ends.push(merged.len());
    }
    let mut spare = Vec::with_capacity(merged.len());
    while ends.len() > 1 {
        spare.clear();
        let mut start = 0;
        let mut next_ends = Vec::with_capacity(ends.len().div_ceil(2));
        for pair in ends.chunks(2) {
            let bottom = &merged[start..pair[0]];
            match pair.get(1) {
                Some(&end) => overlay_into(&mut spare, &merged[pair[0]..end], bottom),
                None => spare.extend_from_slice(bottom),
            }
            start = pair[pair.len() - 1];
            next_ends.push(spare.len());
        }
        std::mem::swap(&mut merged, &mut spare);
        ends = next_ends;
    }
    merged
}

/// Joins entries that continue each other on the disk and in the file.
pub(crate) fn join_neighbours(entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let mut joined: Vec<Entry> = Vec::new();
    for entry in entries {
        match joined.last_mut() {
            Some(last) if last.is_continued_by(entry) => *last = last.extended_by(entry.length()),
            _ => joined.push(entry),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTORS: usize = 64;

    /// Which layer and target each sector has: the plain form of an index.
    fn spread(entries: &[Entry]) -> Vec<Option<(usize, Option<u64>)>> {
        let mut sectors = vec![None; SECTORS];
        let mut end = 0;
        for entry in entries {
            assert!(entry.start() >= end && entry.length() > 0, "unsorted: {entries:?}");
            end = entry.end();
            for sector in entry.start()..entry.end() {
                let target = entry.clipped(sector, sector + 1).target();
                let place = (!entry.is_zeroed()).then_some(target);
                sectors[sector as usize] = Some((entry.layer(), place));
            }
        }
        sectors
    }

    fn index() -> impl Strategy<Value = Vec<Entry>> {
        prop::collection::vec((0u64..6, 1u64..9, 8u64..1000, any::<bool>()), 0..8).prop_map(|runs| {
            let mut at = 0;
            let mut entries = Vec::new();
            for (gap, length, target, zeroed) in runs {
                let start = at + gap;
                if start + length > SECTORS as u64 {
                    break;
                }
                at = start + length;
                let make = if zeroed { Entry::zeroed } else { Entry::with_data };
                entries.push(make(start, length, target));
            }
            entries
        })
    }

    proptest! {
        #[test]
        fn test_the_highest_layer_wins_sector_by_sector(layers in prop::collection::vec(index(), 0..7)) {
            let mut expected = vec![None; SECTORS];
            for (number, layer) in layers.iter().enumerate() {
                for (sector, place) in spread(layer).into_iter().enumerate() {
                    if let Some((_, target)) = place {
                        expected[sector] = Some((number, target));
                    }
                }
            }
            let slices: Vec<&[Entry]> = layers.iter().map(Vec::as_slice).collect();
            let merged = overlay_all(&slices);
            prop_assert_eq!(spread(&merged), expected.clone());
            prop_assert_eq!(spread(&join_neighbours(merged)), expected);
        }
    }
}
