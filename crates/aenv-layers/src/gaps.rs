//! Making a layer with fewer index entries than its content has runs, by copying what lies between them as well.

use crate::extent::Extent;
use crate::limits::{INDEX_PADDING, JOINED_RUN_SECTORS, MAX_ENTRIES_PER_LAYER};
use crate::view::{Content, Piece};

/// Joins the pieces over the cheapest gaps until an index can hold them, and leaves holes out.
///
/// A joined piece is data: read it from the whole disk, where a gap shows what is below. The result has more pieces
/// than an index can hold only when the content alone is too large for one layer.
pub fn bridge_gaps(pieces: &[Piece]) -> Vec<Piece> {
    let limit = MAX_ENTRIES_PER_LAYER / INDEX_PADDING * INDEX_PADDING;
    bridge_gaps_to(pieces, limit)
}

/// The same, for an index of at most `limit` entries.
pub fn bridge_gaps_to(pieces: &[Piece], limit: u64) -> Vec<Piece> {
    let defined: Vec<Piece> = pieces.iter().copied().filter(|piece| piece.content != Content::Hole).collect();
    let entries: u64 = defined.iter().map(|piece| piece.extent.length.div_ceil(JOINED_RUN_SECTORS)).sum();
    let Some(excess) = entries.checked_sub(limit).filter(|&excess| excess > 0) else { return defined };
    let mut costs: Vec<u64> = defined.windows(2).map(|pair| cost(pair[0], pair[1])).collect();
    let needed = (excess as usize).min(costs.len());
    if needed == 0 {
        return defined;
    }
    // Everything up to the cost of the last gap needed is bridged; ties only make the index smaller.
    let affordable = *costs.select_nth_unstable(needed - 1).1;
    join(&defined, affordable)
}

/// Sectors that must be copied to make one piece of two.
fn cost(first: Piece, second: Piece) -> u64 {
    let zeroes = |piece: Piece| if piece.content == Content::Zeroed { piece.extent.length } else { 0 };
    second.extent.start - first.extent.end() + zeroes(first) + zeroes(second)
}

fn join(pieces: &[Piece], affordable: u64) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    let mut previous: Option<Piece> = None;
    for &piece in pieces {
        match (joined.last_mut(), previous) {
            (Some(last), Some(before)) if cost(before, piece) <= affordable => {
                let start = last.extent.start;
                let extent = Extent { start, length: piece.extent.end() - start };
                *last = Piece { extent, content: Content::Data };
            }
            _ => joined.push(piece),
        }
        previous = Some(piece);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, length: u64, content: Content) -> Piece {
        Piece { extent: Extent { start, length }, content }
    }

    #[test]
    fn test_the_cheapest_gaps_are_bridged_first() {
        let pieces = [
            piece(0, 8, Content::Data),
            piece(8, 100, Content::Hole),
            piece(108, 8, Content::Data),
            piece(118, 2, Content::Data),
            piece(120, 50, Content::Zeroed),
        ];
        assert_eq!(bridge_gaps_to(&pieces, 4).len(), 4);
        let three = [pieces[0], piece(108, 12, Content::Data), pieces[4]];
        assert_eq!(bridge_gaps_to(&pieces, 3), three);
        assert_eq!(bridge_gaps_to(&pieces, 2), [pieces[0], piece(108, 62, Content::Data)]);
        assert_eq!(bridge_gaps_to(&pieces, 1), [piece(0, 170, Content::Data)]);
    }

    #[test]
    fn test_long_pieces_count_as_the_entries_that_they_need() {
        let long = piece(0, 3 * JOINED_RUN_SECTORS, Content::Data);
        let far = piece(1 << 30, 8, Content::Data);
        assert_eq!(bridge_gaps_to(&[long, far], 4), [long, far]);
        assert_eq!(bridge_gaps_to(&[long, far], 3).len(), 1);
    }
}
