"""A home with a real block daemon."""

from collections.abc import AsyncIterator

import pytest

from support.real_disks import DiskLab, disk_lab


@pytest.fixture
async def lab() -> AsyncIterator[DiskLab]:
    async with disk_lab() as made:
        yield made
