"""Which layers are merged: chains stay short, and bytes are copied a few times in all."""

from hypothesis import given
from hypothesis import strategies as st

from agentenv.snapshots.chain import Chain, Link, Window

SHOWN = 1 << 20


def shorten(chain: Chain) -> tuple[Chain, int]:
    written = 0
    if chain.is_long:
        while (window := chain.choose()) is not None:
            neighbours = chain.links[window.start : window.end]
            size = min(sum(link.size_bytes for link in neighbours), chain.shown_bytes)
            written += size
            chain = chain.merged(window, Link(size, sum(link.weight for link in neighbours)))
    return chain, written


def test_a_short_chain_stays() -> None:
    assert not Chain((Link(10),) * 16, SHOWN, 16).is_long


def test_seventeen_become_a_large_one_and_a_small_one() -> None:
    chain, _ = shorten(Chain((Link(10),) * 17, SHOWN, 16))
    assert chain.links == (Link(160, 16), Link(10))


def test_equal_neighbours_are_merged_where_their_place_allows() -> None:
    assert Chain((Link(1, 4), *(Link(1),) * 16), SHOWN, 16).choose() == Window(1, 5)


def test_a_large_layer_is_not_copied() -> None:
    chain, _ = shorten(Chain((Link(SHOWN // 4), *(Link(10),) * 16), SHOWN, 16))
    assert chain.links == (Link(SHOWN // 4), Link(160, 16))


def test_a_chain_of_mostly_dead_bytes_becomes_one_layer() -> None:
    chain, _ = shorten(Chain((Link(SHOWN),) * 3, SHOWN, 16))
    assert chain.links == (Link(SHOWN, 3),)


def test_a_thousand_captures_stay_short_and_copy_each_byte_a_few_times() -> None:
    chain, written = Chain((), SHOWN, 16), 0
    for _ in range(1000):
        chain, more = shorten(Chain((*chain.links, Link(10)), SHOWN, 16))
        written += more
        assert len(chain.links) <= 16
    assert written < 6 * 1000 * 10


def test_sisters_need_the_same_groups_from_the_first_layers() -> None:
    wanted: set[tuple[int, int]] = set()
    for count in range(17, 200):
        chain = Chain((Link(10),) * count, SHOWN, 16)
        while (window := chain.choose()) is not None:
            place = sum(link.weight for link in chain.links[: window.start])
            weight = sum(link.weight for link in chain.links[window.start : window.end])
            wanted.add((place, weight))
            chain = chain.merged(window, Link(weight * 10, weight))
        assert len(chain.links) <= 16
    assert sum(weight for _, weight in wanted) < 4 * 200


@given(
    st.lists(st.tuples(st.integers(0, 2 * SHOWN), st.integers(1, 64)), min_size=1, max_size=60),
    st.integers(4, 32),
)
def test_any_chain_ends_short(links: list[tuple[int, int]], limit: int) -> None:
    chain = Chain(tuple(Link(size, weight) for size, weight in links), SHOWN, limit)
    result, _ = shorten(chain)
    assert not result.is_long
    assert sum(link.weight for link in result.links) == sum(weight for _, weight in links)
