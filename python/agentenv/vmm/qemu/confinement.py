"""The cage that a monitor starts in: its network namespace, its user, no privilege. Pure: words only."""

from pathlib import Path

_NAMESPACES = Path("/run/netns")


def namespace_path(name: str) -> Path:
    """Return the file by which a named network namespace is entered."""
    return _NAMESPACES / name


def confine(
    words: list[str], *, namespace: str | None, uid: int, oom_score_adjustment: int, groups: tuple[int, ...] = ()
) -> list[str]:
    """Return the words that start `words` inside the cage. Each program replaces the one before: one process in all.

    `groups` are the groups that the monitor needs beside its own: the one of /dev/kvm.
    """
    supplementary = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    return [
        *("choom", f"--adjust={oom_score_adjustment}", "--"),
        # A core would hold the guest's memory.
        *("prlimit", "--core=0", "--"),
        *(("nsenter", f"--net={namespace_path(namespace)}", "--") if namespace is not None else ()),
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", supplementary),
        *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"),
        *words,
    ]
