"""Errors of the kernel, netlink and commands leave the package as ours."""

import errno

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from agentenv.base.errors import TimedOut
from agentenv.base.process import CommandFailed
from agentenv.network.errors import NetworkFailed, translated


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (PermissionError(errno.EPERM, "no"), "making a link failed: Operation not permitted; run the server as root"),
        (NetlinkError(errno.EOPNOTSUPP, "no"), "making a link failed: .*this kernel lacks the feature"),
        (OSError(errno.EBUSY, "no"), "another process still holds it"),
        (OSError(errno.EXDEV, "no"), "making a link failed: Invalid cross-device link$"),
        (OSError("without a number"), "making a link failed: no reason given$"),
        (CommandFailed("nft ended with 1: bad"), "making a link failed: nft ended with 1: bad"),
    ],
)
def test_causes_are_translated_with_what_to_do(cause: Exception, words: str) -> None:
    with pytest.raises(NetworkFailed, match=words) as error, translated("making a link"):
        raise cause
    assert error.value.__cause__ is cause


def test_what_is_ours_already_passes() -> None:
    with pytest.raises(TimedOut), translated("making a link"):
        raise TimedOut("nft did not end")


def test_a_bug_is_not_disguised() -> None:
    with pytest.raises(KeyError), translated("making a link"):
        raise KeyError("x")
