"""`durable logs`: what a replica wrote, where its node really ran it."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from durable.agent.hosting import DRIVER, PROCESS
from durable.agent.replica_directory import ReplicaDirectory
from durable.authority.connection import Databases
from durable.authority.inspection import read_node
from durable.authority.shares import ShareStatus, SlotStatus, read_shares
from durable.cli.authority import with_authority
from durable.cli.listed_regions import chosen_regions
from durable.cli.names import Name, workload_named
from durable.cli.options import AsJson, StateDir, load_settings
from durable.cli.output import print_json
from durable.model.capacity import Node
from durable.model.refusal import RefusalCode, RefusedError

LOOK_SECONDS = 0.2
MAX_BYTES = 1024**2


def logs(
    name: Name,
    slot: Annotated[int, typer.Argument(min=0, max=99_999, help="Which replica.")],
    stderr: Annotated[bool, typer.Option("--stderr", help="What it wrote to stderr.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what a replica wrote; simulated nodes run nothing and so have no logs."""
    if follow and as_json:
        raise typer.BadParameter("one JSON object has an end; leave --follow or --json away")
    tenant, workload = workload_named(name)

    async def work(databases: Databases) -> tuple[ShareStatus, SlotStatus, Node]:
        for region in await chosen_regions(databases, None):
            for share in await read_shares(databases, region, tenant, workload):
                for one in share.slots:
                    if one.slot == slot:
                        return share, one, await read_node(databases, region, one.node)
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"Slot {slot} of {tenant}/{workload} is bound nowhere now; "
            f"see durable explain {tenant}/{workload}.",
        )

    share, one, node = with_authority(state_dir, work)
    path = _log_of(load_settings(state_dir).state_dir, share, one, node, stderr)
    if as_json:
        text = _tail(path).decode(errors="replace")
        print_json({"node": str(one.node), "file": str(path), "text": text})
    else:
        _copy(path, follow)


def _log_of(state_dir: Path, share: ShareStatus, one: SlotStatus, node: Node, stderr: bool) -> Path:
    if node.labels.get(DRIVER) != PROCESS:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{one.node} is simulated: it runs nothing, and so slot {one.slot} wrote nothing. "
            "Host a node with durable agent --node to run commands.",
        )
    folder = state_dir / "agents" / one.node / f"{share.region}-{one.token}"
    replica = ReplicaDirectory(folder.absolute())
    if not replica.path.is_dir():
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{one.node} keeps its logs elsewhere, not below {state_dir}: ask on that machine, "
            "with the --state-dir of its agent."[:500],
        )
    return replica.stderr if stderr else replica.stdout


def _tail(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_BYTES))
        return file.read(MAX_BYTES)


def _copy(path: Path, follow: bool) -> None:
    """Byte by byte as it was written: a log is the replica's, not ours to mend."""
    shown = _tail(path)
    sys.stdout.buffer.write(shown)
    sys.stdout.buffer.flush()
    position = path.stat().st_size if path.exists() else 0
    try:
        while follow:
            time.sleep(LOOK_SECONDS)
            size = path.stat().st_size if path.exists() else 0
            # Its agent cuts a log that has grown too long; then it begins anew.
            position = 0 if size < position else position
            if size > position:
                with path.open("rb") as file:
                    file.seek(position)
                    more = file.read(MAX_BYTES)
                position += len(more)
                sys.stdout.buffer.write(more)
                sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        return
