"""Ends a process as kill -9 does, at the n-th thing that it asks of the file system, without ending the test."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentenv.snapshots.access import Access

CALLS = ("link", "fsync", "replace", "unlink", "mkdir", "rmdir", "rename")


class Killed(BaseException):
    """No `except Exception` sees it, and from the first one on nothing more is done: no cleanup either."""


class Killer:
    """Counts calls; the one with number `at` and all after it do nothing but raise."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = 0

    @property
    def has_killed(self) -> bool:
        return self.at is not None and self.count >= self.at

    def step(self) -> None:
        self.count += 1
        if self.has_killed:
            raise Killed


@contextmanager
def killing(killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `killer` decide over every call of `CALLS`, and over what is asked of the index afterwards."""
    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, _deciding(killer, getattr(os, name)))
        for name in ("read", "change", "ledger"):
            patch.setattr(Access, name, _ending_with(killer, getattr(Access, name)))
        yield


def _deciding(killer: Killer, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        killer.step()
        return genuine(*arguments, **named)

    return call


def _ending_with(killer: Killer, genuine: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> Any:
        if killer.has_killed:
            raise Killed
        return await genuine(*arguments, **named)

    return call
