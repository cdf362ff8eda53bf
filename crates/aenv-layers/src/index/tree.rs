//! The index of a writable layer: a tree of disjoint runs in which the newest record wins.

use std::collections::BTreeMap;

use super::Entry;
use crate::extent::Extent;

/// Runs by their first sector.
///
/// Invariant: runs are disjoint.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    runs: BTreeMap<u64, Entry>,
}

impl Tree {
    /// Lets `entry` replace what it covers, and hands out the replaced parts.
    pub(crate) fn insert(&mut self, entry: Entry, mut replaced: impl FnMut(Entry)) {
        self.split_before(entry.start());
        while let Some((&start, &old)) = self.runs.range(entry.start()..entry.end()).next() {
            self.runs.remove(&start);
            if old.end() > entry.end() {
                self.runs.insert(entry.end(), old.clipped(entry.end(), u64::MAX));
            }
            replaced(old.clipped(0, entry.end()));
        }
        self.join_or_insert(entry);
    }

    /// Makes sure that no run crosses the start of a sector.
    fn split_before(&mut self, sector: u64) {
        let Some((_, run)) = self.runs.range_mut(..sector).next_back() else { return };
        if run.end() > sector {
            let tail = run.clipped(sector, u64::MAX);
            *run = run.clipped(0, sector);
            self.runs.insert(sector, tail);
        }
    }

    /// Sequential writes would otherwise leave an entry each.
    fn join_or_insert(&mut self, entry: Entry) {
        if let Some((_, previous)) = self.runs.range_mut(..entry.start()).next_back() {
            if previous.is_continued_by(entry) {
                *previous = previous.extended_by(entry.length());
                return;
            }
        }
        self.runs.insert(entry.start(), entry);
    }

    /// The runs that overlap the extent, clipped to it, in order.
    pub(crate) fn overlapping(&self, extent: Extent) -> impl Iterator<Item = Entry> + '_ {
        let before = self.runs.range(..extent.start).next_back();
        before
            .into_iter()
            .chain(self.runs.range(extent.start..extent.end()))
            .map(|(_, run)| *run)
            .filter(move |run| run.end() > extent.start)
            .map(move |run| run.clipped(extent.start, extent.end()))
    }

    /// All runs in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.runs.values().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECTORS: u64 = 64;

    type Place = Option<Option<u64>>;

    fn place(entry: Entry, sector: u64) -> Place {
        let one = entry.clipped(sector, sector + 1);
        Some((!one.is_zeroed()).then_some(one.target()))
    }

    fn record() -> impl Strategy<Value = Entry> {
        (0..SECTORS, 1..20u64, 8..40u64, any::<bool>()).prop_map(|(start, length, target, zeroed)| {
            let length = length.min(SECTORS - start);
            if zeroed {
                Entry::zeroed(start, length, target)
            } else {
                Entry::with_data(start, length, target)
            }
        })
    }

    proptest! {
        #[test]
        fn test_the_newest_record_wins_and_the_old_is_handed_out(
            records in prop::collection::vec(record(), 0..40),
            start in 0..SECTORS,
            length in 1..SECTORS,
        ) {
            let mut model: Vec<Place> = vec![None; SECTORS as usize];
            let mut tree = Tree::default();
            for record in records {
                let mut replaced = Vec::new();
                tree.insert(record, |old| replaced.push(old));
                let mut expected = model[record.start() as usize..record.end() as usize].to_vec();
                for old in replaced {
                    for sector in old.start()..old.end() {
                        let slot = &mut expected[(sector - record.start()) as usize];
                        prop_assert_eq!(slot.take(), place(old, sector));
                    }
                }
                prop_assert!(expected.iter().all(Option::is_none));
                for sector in record.start()..record.end() {
                    model[sector as usize] = place(record, sector);
                }
            }
            let mut found = vec![None; SECTORS as usize];
            let mut end = 0;
            for run in tree.iter() {
                prop_assert!(run.start() >= end);
                end = run.end();
                for sector in run.start()..run.end() {
                    found[sector as usize] = place(run, sector);
                }
            }
            prop_assert_eq!(&found, &model);

            let extent = Extent { start, length: length.min(SECTORS - start) };
            let mut part = vec![None; SECTORS as usize];
            for run in tree.overlapping(extent) {
                prop_assert!(run.start() >= extent.start && run.end() <= extent.end());
                for sector in run.start()..run.end() {
                    part[sector as usize] = place(run, sector);
                }
            }
            let inside = extent.start as usize..extent.end() as usize;
            prop_assert_eq!(&part[inside.clone()], &model[inside]);
        }
    }

    #[test]
    fn test_sequential_writes_share_an_entry() {
        let mut tree = Tree::default();
        for write in 0..4096 {
            tree.insert(Entry::with_data(write * 8, 8, 8 + write * 8), |_| ());
        }
        assert_eq!(tree.len(), 3);
    }
}
