"""Which neighbours of a chain of layers to merge. Pure.

The rule gives sisters equal groups: snapshots of one sandbox share all but the newest layers, and what was merged for
one of them serves the next, whether the next stands on the merged layers or on the first ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

_GROUP = 4
_DEAD_FACTOR = 2
_LARGE_SHARE = 8


@dataclass(frozen=True, slots=True)
class Link:
    """A layer: its size, and how many layers, as they were captured, it stands for."""

    size_bytes: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbours: those from `start` up to but without `end`, counted from the bottom."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Layers, bottom first, that show `shown_bytes`, of which there should be no more than `limit`."""

    links: tuple[Link, ...]
    shown_bytes: int
    limit: int

    @property
    def is_long(self) -> bool:
        """Whether there is something to do: too many layers, or more than half of the bytes must be dead."""
        return len(self.links) > self.limit or self._is_dead

    @property
    def _is_dead(self) -> bool:
        total = sum(link.size_bytes for link in self.links)
        return len(self.links) > 1 and total > _DEAD_FACTOR * self.shown_bytes

    def choose(self) -> Window | None:
        """Return what to merge next, of a chain that was found long; None when it is done.

        Four neighbours of equal weight become one of four times the weight, where their place among all layers is a
        multiple of that, as digits carry. So of n layers there remain at most three for each power of four, and a
        byte is copied once for each. A large layer stands apart: copying it would cost more than it saves.
        """
        if self._is_dead:
            return Window(0, len(self.links))
        return next(self._groups(), None) or self._cheapest()

    def merged(self, window: Window, link: Link) -> "Chain":
        """Return the chain with `link` in the place of a window."""
        return replace(self, links=(*self.links[: window.start], link, *self.links[window.end :]))

    def _groups(self) -> Iterator[Window]:
        place = 0
        for start, first in enumerate(self.links):
            if self._is_large(first):
                place = 0
                continue
            group = self.links[start : start + _GROUP]
            if (
                len(group) == _GROUP
                and place % (_GROUP * first.weight) == 0
                and all(link.weight == first.weight and not self._is_large(link) for link in group)
            ):
                yield Window(start, start + _GROUP)
            place += first.weight

    def _is_large(self, link: Link) -> bool:
        return link.size_bytes * _LARGE_SHARE > self.shown_bytes

    def _cheapest(self) -> Window | None:
        """Where the rule does not lead below the limit: the neighbours that cost least for each layer saved."""
        if len(self.links) <= self.limit:
            return None
        least = max(len(self.links) - self.limit, self.limit // 3, 1)
        ends = range(len(self.links) + 1)
        windows = [Window(start, end) for start in ends for end in ends if end - start > least]
        return min(windows, key=self._cost)

    def _cost(self, window: Window) -> float:
        neighbours = self.links[window.start : window.end]
        return sum(link.size_bytes for link in neighbours) / (len(neighbours) - 1)
