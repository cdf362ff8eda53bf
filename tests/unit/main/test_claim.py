"""Two servers of one host never share the names of their slots or the user ids of their monitors."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentenv.base import process
from agentenv.base.process import CommandFailed
from agentenv.main.claim import ClaimImpossible, HostClaim
from agentenv.network.settings import NetworkSettings

_OTHER = """
import sys
from pathlib import Path
from agentenv.main.claim import HostClaim
from agentenv.network.settings import NetworkSettings
HostClaim(NetworkSettings(prefix=sys.argv[2], uid_base=int(sys.argv[3]), max_slots=10), Path(sys.argv[1]))
"""


@pytest.fixture
def claim(tmp_path: Path) -> Iterator[HostClaim]:
    made = HostClaim(NetworkSettings(prefix="aenv", uid_base=1000, max_slots=10), tmp_path)
    yield made
    made.release()


async def start_another(directory: Path, *, prefix: str, uid_base: int) -> None:
    arguments = [sys.executable, "-c", _OTHER, str(directory), prefix, str(uid_base)]
    await process.run(arguments, environment={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("uid_base", [990, 1010])
async def test_a_server_with_names_and_user_ids_of_its_own_starts_beside(
    claim: HostClaim, tmp_path: Path, uid_base: int
) -> None:
    await start_another(tmp_path, prefix="other", uid_base=uid_base)


async def test_names_are_had_by_one_server_at_a_time(claim: HostClaim, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"network\.prefix = aenv"):
        await start_another(tmp_path, prefix="aenv", uid_base=5000)

    claim.release()
    await start_another(tmp_path, prefix="aenv", uid_base=5000)


@pytest.mark.parametrize("uid_base", [991, 1000, 1009])
async def test_user_ids_are_had_by_one_server_at_a_time(claim: HostClaim, tmp_path: Path, uid_base: int) -> None:
    with pytest.raises(CommandFailed, match=rf"user ids between {uid_base} and {uid_base + 9}"):
        await start_another(tmp_path, prefix="other", uid_base=uid_base)


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClaimImpossible, match="file"):
        HostClaim(NetworkSettings(), tmp_path / "file")
