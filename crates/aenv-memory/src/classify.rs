//! What becomes of each page of a copy. Pure.

use crate::runs::PAGE_SIZE;

/// What a layer says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its bytes.
    Data,
    /// That it is zero, which hides what is below and takes no space.
    Zeroed,
    /// Nothing, because what is below, or is read where nothing is, is the same.
    Same,
}

/// What stands below the pages that are classified.
#[derive(Clone, Copy)]
pub(crate) enum Below<'a> {
    /// Nothing, which reads as zeros.
    Nothing,
    /// Something unknown.
    Unknown,
    /// These bytes.
    Known(&'a [u8]),
}

/// Splits pages into runs of one kind. Runs shorter than `shortest` that are no data become data, so that an index
/// stays within its limit.
pub(crate) fn split(pages: &[u8], below: Below<'_>, shortest: u64) -> Vec<(Kind, u64)> {
    let mut runs: Vec<(Kind, u64)> = Vec::new();
    for (number, page) in pages.chunks_exact(PAGE_SIZE as usize).enumerate() {
        append(&mut runs, kind_of(page, below, number), 1);
    }
    if shortest <= 1 {
        return runs;
    }
    let mut joined = Vec::new();
    for (kind, count) in runs {
        append(&mut joined, if count < shortest { Kind::Data } else { kind }, count);
    }
    joined
}

fn append(runs: &mut Vec<(Kind, u64)>, kind: Kind, count: u64) {
    match runs.last_mut().filter(|last| last.0 == kind) {
        Some(last) => last.1 += count,
        None => runs.push((kind, count)),
    }
}

fn kind_of(page: &[u8], below: Below<'_>, number: usize) -> Kind {
    if let Below::Known(bytes) = below {
        let start = number * PAGE_SIZE as usize;
        if bytes[start..start + PAGE_SIZE as usize] == *page {
            return Kind::Same;
        }
    }
    match (is_zero(page), below) {
        (false, _) => Kind::Data,
        (true, Below::Nothing) => Kind::Same,
        (true, _) => Kind::Zeroed,
    }
}

fn is_zero(page: &[u8]) -> bool {
    // Most pages that are not zero say so in their first bytes; the rest is compared in wide steps.
    page.chunks_exact(128).all(|part| part.iter().fold(0, |seen, byte| seen | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(bytes: &[u8]) -> Vec<u8> {
        bytes
            .iter()
            .flat_map(|&byte| {
                let mut page = vec![0; PAGE_SIZE as usize];
                page[4095] = byte;
                page
            })
            .collect()
    }

    #[test]
    fn test_zeros_are_told_apart_by_what_is_below() {
        let bytes = pages(&[1, 0, 0, 2]);
        let ends = |middle| vec![(Kind::Data, 1), (middle, 2), (Kind::Data, 1)];
        assert_eq!(split(&bytes, Below::Nothing, 1), ends(Kind::Same));
        assert_eq!(split(&bytes, Below::Unknown, 1), ends(Kind::Zeroed));
        let below = pages(&[1, 0, 9, 3]);
        let expected = [(Kind::Same, 2), (Kind::Zeroed, 1), (Kind::Data, 1)];
        assert_eq!(split(&bytes, Below::Known(&below), 1), expected);
    }

    #[test]
    fn test_short_runs_are_copied_when_the_index_would_be_too_large() {
        let bytes = pages(&[1, 0, 1, 0, 0, 0, 1]);
        let expected = [(Kind::Data, 3), (Kind::Zeroed, 3), (Kind::Data, 1)];
        assert_eq!(split(&bytes, Below::Unknown, 2), expected);
    }
}
