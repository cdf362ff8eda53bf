"""The words of `aenv layer`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from agentenv.base.errors import AgentEnvError
from agentenv.blocks.layers import LayerFiles, NewLayer, WrittenLayer
from agentenv.cli import exit_codes
from agentenv.main.layer import session
from agentenv.main.layer.show import Verdict, show_description, show_verdicts, show_written

_FILE = click.Path(path_type=Path)


@click.group
def layer() -> None:
    """Look at layers, check them, make one of many."""


@layer.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def inspect(*, file: Path, as_json: bool) -> None:
    """Show what a layer says about itself.

    Its headers and its whole index are checked; its data are not read. Where the output is no terminal: one
    tab-separated line for each value.
    """
    show_description(session.run(lambda hands, _: hands.inspect(file)), as_json=as_json)


@layer.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def verify(*, files: tuple[Path, ...], as_json: bool) -> None:
    """Read layers from end to end and check every block.

    Prints for each what could be checked (`blocks` where they have checksums, else `structure`) and its digest. A layer
    that is damaged or cannot be read does not keep the others from being checked; the exit code is 1 then.
    """
    verdicts = session.run(lambda hands, open_bar: _verify_all(hands, open_bar, files))
    show_verdicts(verdicts, as_json=as_json)
    if any(verdict.error is not None for verdict in verdicts):
        raise SystemExit(exit_codes.FAILURE)


@layer.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("-o", "--output", required=True, type=_FILE, help="The file to make; it must not exist.")
@click.option("--compression", type=click.Choice(["lz4", "zstd"]), help="Compress it in blocks with checksums.")
@click.option("--archive", is_flag=True, help="Pack it into a tar, as registries expect.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def flatten(
    *,
    files: tuple[Path, ...],
    output: Path,
    compression: Literal["lz4", "zstd"] | None,
    archive: bool,
    as_json: bool,
) -> None:
    """Make one layer of all layers of a disk, which are named from the lowest to the highest.

    The result stands alone: zeros are not stored. Equal disks give equal files. What is interrupted leaves no file.
    """

    async def work(hands: LayerFiles, open_bar: session.OpenBar) -> WrittenLayer:
        with open_bar(str(output)) as progress:
            new = NewLayer(compression=compression, archive=archive)
            return await hands.flatten(files, output, new=new, progress=progress)

    show_written(session.run(work), as_json=as_json)


async def _verify_all(hands: LayerFiles, open_bar: session.OpenBar, files: Sequence[Path]) -> list[Verdict]:
    verdicts = []
    for path in files:
        try:
            with open_bar(path.name) as progress:
                verdicts.append(Verdict(path, verification=await hands.verify(path, progress=progress)))
        except AgentEnvError as error:
            verdicts.append(Verdict(path, error=error.message))
    return verdicts
