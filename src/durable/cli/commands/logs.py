"""`durable logs`: what a replica wrote, as its node's agent on this machine kept it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from durable.agent.nodes import DRIVER, PROCESS
from durable.agent.process.replica_files import ReplicaFiles, find_replica_files
from durable.authority.db.errors import AuthorityError
from durable.cli.connections import with_reader
from durable.cli.input.options import (
    AsJson,
    StateDir,
    WorkloadArgument,
    flag,
    load_settings,
    parse_workload,
)
from durable.cli.render.logs import LogFile, print_logs, tail
from durable.cli.render.output import print_json, progress
from durable.model.ids import Slot, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.state_dir.record import StackError

NOTE_SECONDS = 2.0


def logs(
    name: WorkloadArgument,
    slot: Annotated[
        int, typer.Argument(metavar="SLOT", min=0, max=99_999, help="The slot of the replica.")
    ],
    attempt: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Show this attempt instead of the latest."),
    ] = None,
    stdout: Annotated[bool, flag("--stdout", help="Only stdout.")] = False,
    stderr: Annotated[bool, flag("--stderr", help="Only stderr.")] = False,
    follow: Annotated[bool, flag("--follow", help="Print until interrupted.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    if follow and as_json:
        raise typer.BadParameter("--follow and --json exclude each other; omit one of them")
    tenant, workload = parse_workload(name)
    root = load_settings(state_dir).state_dir
    kept = find_replica_files(root, tenant, workload, slot)
    matching = [one for one in kept if attempt in (None, one.assignment.attempt)]
    if not matching:
        _refuse(state_dir, root, (tenant, workload, slot), kept)
    files = matching[-1]
    every_stream = stdout == stderr
    streams = [
        stream
        for stream in (
            LogFile("stdout", files.directory.stdout),
            LogFile("stderr", files.directory.stderr),
        )
        if every_stream or stream.stream == ("stdout" if stdout else "stderr")
    ]
    if as_json:
        print_json(_as_json(files, streams))
    else:
        progress.print(str(files), markup=False)
        print_logs(streams, follow)
    if attempt is None and not follow:
        _note_newer_attempt(state_dir, files)


def _as_json(files: ReplicaFiles, streams: list[LogFile]) -> dict[str, object]:
    assignment = files.assignment.model_dump(mode="json")
    keys = ("tenant", "workload", "generation", "slot", "attempt", "region", "node", "token")
    logs = {
        one.stream: {"file": str(one.path), "text": tail(one.path).decode(errors="replace")}
        for one in streams
    }
    exit_code = files.directory.exit_code
    return {**{key: assignment[key] for key in keys}, "exit_code": exit_code, "logs": logs}


def _note_newer_attempt(state_dir: Path | None, files: ReplicaFiles) -> None:
    """The logs on this machine may be old, while the slot now runs on another machine."""
    printed = files.assignment
    replica = (printed.tenant, printed.workload, printed.slot)
    # Only this note needs the authority, and it is not worth a long wait.
    with suppress(StackError, AuthorityError, RefusedError, TimeoutError):
        bound = with_reader(
            state_dir,
            lambda reader: asyncio.wait_for(reader.bound_slot(*replica), NOTE_SECONDS),
        )
        if bound is not None and bound[0].token != printed.token:
            now = bound[0]
            progress.print(
                f"Attempt {now.attempt} is now {now.state} on {now.node}, whose logs are not here."
            )


def _refuse(
    state_dir: Path | None,
    root: Path,
    replica: tuple[TenantId, WorkloadName, Slot],
    kept: list[ReplicaFiles],
) -> NoReturn:
    """Says why there are no logs: another attempt, another machine, or a simulated node."""
    tenant, workload, slot = replica
    if kept:
        attempts = ", ".join(str(one.assignment.attempt) for one in kept[-10:])
        sentence = f"Slot {slot} of {tenant}/{workload} has logs here of attempts: {attempts}."
        raise RefusedError(RefusalCode.UNKNOWN_ATTEMPT, sentence)
    bound = with_reader(state_dir, lambda reader: reader.bound_slot(*replica))
    if bound is None:
        raise RefusedError(
            RefusalCode.NOT_BOUND,
            f"Slot {slot} of {tenant}/{workload} is not bound to any node, and no node on this "
            f"machine has logs of it; see `durable explain {tenant}/{workload}`.",
        )
    one, node = bound
    if node.labels.get(DRIVER) != PROCESS:
        raise RefusedError(
            RefusalCode.SIMULATED_NODE,
            f"Slot {slot} is on {one.node}, a simulated node, which runs nothing and logs nothing. "
            "Run a real node with `durable agent --node NAME`.",
        )
    raise RefusedError(
        RefusalCode.LOGS_ELSEWHERE,
        f"The logs of {one.node} are not below {root}: run this command on its machine, "
        "with the --state-dir of its agent.",
    )
