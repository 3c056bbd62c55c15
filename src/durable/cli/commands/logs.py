"""`durable logs`: what a replica wrote, where its node really ran it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from durable.agent.hosting import DRIVER, PROCESS
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.assignments import Assignment
from durable.authority.reads.inspection import read_node
from durable.authority.reads.shares import read_shares
from durable.cli.connections import select_regions, with_authority
from durable.cli.input.names import WorkloadArgument, parse_workload
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.input.replica_files import ReplicaFiles, replica_files
from durable.cli.render.logs import LogFile, print_logs, tail
from durable.cli.render.output import print_json, progress
from durable.model.capacity import Node
from durable.model.ids import Slot, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.slots import ObservedSlot
from durable.state_dir.errors import StackError

Bound = tuple[ObservedSlot, Node]
REMARK_SECONDS = 2.0


def logs(
    name: WorkloadArgument,
    slot: Annotated[int, typer.Argument(min=0, max=99_999, help="Which replica.")],
    attempt: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Not the newest attempt, but this."),
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only what it wrote to stdout.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only what it wrote to stderr.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the logs of a replica; simulated replicas have none."""
    if follow and as_json:
        raise typer.BadParameter("one JSON object has an end; leave --follow or --json away")
    tenant, workload = parse_workload(name)
    place = load_settings(state_dir).state_dir
    kept = replica_files(place, tenant, workload, slot)
    chosen = [one for one in kept if attempt in (None, one.assignment.attempt)]
    if not chosen:
        _refuse(state_dir, place, (tenant, workload, slot), kept)
    files = chosen[-1]
    directory = files.directory
    every = [LogFile("stdout", directory.stdout), LogFile("stderr", directory.stderr)]
    both = stdout == stderr
    shown = [one for one in every if both or one.stream == ("stdout" if stdout else "stderr")]
    if as_json:
        print_json(_as_json(files, shown))
    else:
        progress.print(str(files), markup=False)
        print_logs(shown, follow)
    if attempt is None and not follow:
        _tell_of_newer(state_dir, files.assignment)


def _as_json(files: ReplicaFiles, shown: list[LogFile]) -> dict[str, object]:
    of = files.assignment.model_dump(mode="json")
    named = ("tenant", "workload", "generation", "slot", "attempt", "region", "node", "token")
    logs = {
        one.stream: {"file": str(one.path), "text": tail(one.path).decode(errors="replace")}
        for one in shown
    }
    code = files.directory.exit_code
    return {**{key: of[key] for key in named}, "exit_code": code, "logs": logs}


def _tell_of_newer(state_dir: Path | None, shown: Assignment) -> None:
    """What was found here may be the past, while the slot runs where its logs are not seen."""
    of = (shown.tenant, shown.workload, shown.slot)
    # Files need nobody to answer; only this remark does, and it is not worth a wait.
    with suppress(StackError, AuthorityError, RefusedError, TimeoutError):
        bound = with_authority(
            state_dir,
            lambda databases: asyncio.wait_for(_bound(databases, *of), REMARK_SECONDS),
        )
        if bound is not None and bound[0].token != shown.token:
            now = bound[0]
            progress.print(
                f"Now attempt {now.attempt} is {now.state} on {now.node}, which has no logs here."
            )


def _refuse(
    state_dir: Path | None,
    place: Path,
    of: tuple[TenantId, WorkloadName, Slot],
    kept: list[ReplicaFiles],
) -> NoReturn:
    """Says why there is nothing to show: another attempt, another machine, or a simulation."""
    tenant, workload, slot = of
    if kept:
        there = ", ".join(str(one.assignment.attempt) for one in kept[-10:])
        sentence = f"Of slot {slot} of {tenant}/{workload} the attempts with logs here: {there}."
        raise RefusedError(RefusalCode.UNKNOWN_ATTEMPT, sentence)
    bound = with_authority(state_dir, lambda databases: _bound(databases, *of))
    if bound is None:
        raise RefusedError(
            RefusalCode.NOT_BOUND,
            f"Slot {slot} of {tenant}/{workload} is bound nowhere now, and no node of this "
            f"machine kept logs of it; see durable explain {tenant}/{workload}.",
        )
    one, node = bound
    if node.labels.get(DRIVER) != PROCESS:
        raise RefusedError(
            RefusalCode.SIMULATED_NODE,
            f"{one.node} is simulated: it runs nothing, and so slot {slot} wrote nothing. "
            "Host a node with durable agent --node to run commands.",
        )
    raise RefusedError(
        RefusalCode.LOGS_ELSEWHERE,
        f"{one.node} keeps its logs elsewhere, not below {place}: ask on that machine, "
        "with the --state-dir of its agent."[:500],
    )


async def _bound(
    databases: Databases, tenant: TenantId, workload: WorkloadName, slot: Slot
) -> Bound | None:
    for region in await select_regions(databases):
        for share in await read_shares(databases, region, tenant, workload):
            for one in share.slots:
                if one.slot == slot:
                    return one, await read_node(databases, region, one.node)
    return None
