//! Runs of pages: what a scan finds and a copy takes.

use aenv_layers::{bridge_gaps_to, Content, Extent, Piece, MAX_ENTRIES_PER_LAYER, SECTOR_SIZE};

/// Bytes of a page, the unit in which memory changes.
pub const PAGE_SIZE: u64 = 4096;

const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE;

/// Neighbouring pages, counted from the start of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first page.
    pub first: u64,
    /// How many pages.
    pub count: u64,
}

impl PageRun {
    /// The first page behind the run.
    pub fn end(self) -> u64 {
        self.first + self.count
    }
}

/// Runs in ascending order that do not touch one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages(Vec<PageRun>);

impl Pages {
    /// Adds a run behind all others; a neighbour of the last one extends it.
    pub fn push(&mut self, run: PageRun) {
        debug_assert!(
            self.0.last().is_none_or(|last| last.end() <= run.first),
            "runs come in ascending order"
        );
        match self.0.last_mut().filter(|last| last.end() == run.first) {
            Some(last) => last.count += run.count,
            None => self.0.push(run),
        }
    }

    /// All pages of so many bytes.
    pub fn whole(bytes: u64) -> Self {
        Self::from_iter([PageRun { first: 0, count: bytes / PAGE_SIZE }])
    }

    /// The runs.
    pub fn runs(&self) -> &[PageRun] {
        &self.0
    }

    /// The number of pages.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// Joins runs over the cheapest gaps until they take at most half of the index of a layer: the other half is for
    /// what a copy finds within them.
    pub(crate) fn bridged(&self) -> Vec<PageRun> {
        let pieces: Vec<Piece> = self.0.iter().map(|run| piece(*run)).collect();
        let joined = bridge_gaps_to(&pieces, MAX_ENTRIES_PER_LAYER / 2);
        let run = |extent: Extent| PageRun { first: extent.start / SECTORS, count: extent.length / SECTORS };
        joined.into_iter().map(|piece| run(piece.extent)).collect()
    }
}

impl FromIterator<PageRun> for Pages {
    fn from_iter<T: IntoIterator<Item = PageRun>>(runs: T) -> Self {
        let mut pages = Self::default();
        runs.into_iter().for_each(|run| pages.push(run));
        pages
    }
}

fn piece(run: PageRun) -> Piece {
    let extent = Extent { start: run.first * SECTORS, length: run.count * SECTORS };
    Piece { extent, content: Content::Data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_neighbours_become_one_run() {
        let runs = [(0, 2), (2, 1), (5, 1)].map(|(first, count)| PageRun { first, count });
        let pages: Pages = runs.into_iter().collect();
        assert_eq!(pages.runs(), [PageRun { first: 0, count: 3 }, PageRun { first: 5, count: 1 }]);
        assert_eq!(pages.count(), 4);
    }

    #[test]
    fn test_what_would_not_fit_an_index_is_joined() {
        let pages: Pages = (0..600_000).map(|number| PageRun { first: number * 3, count: 1 }).collect();
        let bridged = pages.bridged();
        assert!(bridged.len() as u64 <= MAX_ENTRIES_PER_LAYER / 2);
        assert_eq!(bridged[0].first, 0);
        assert_eq!(bridged[bridged.len() - 1].end(), 599_999 * 3 + 1);
    }
}
