"""`durable replace`: places slots of a workload anew, each up before another is stopped."""

from typing import Annotated

import typer

from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    StateDir,
    Timeout,
    WorkloadArgument,
    parse_workload,
    request_id_of,
)
from durable.cli.render.answered import ask_and_follow


def replace(
    name: WorkloadArgument,
    reason: Annotated[str, typer.Option("--reason", help="The reason, for the audit.")],
    slot: Annotated[
        list[int] | None,
        typer.Option(min=0, max=99_999, help="A slot to replace; repeatable, by default all."),
    ] = None,
    no_wait: NoWait = False,
    timeout: Timeout = 3_600.0,
    request_id: IdempotencyKey = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Replace slots of a workload, each up before another is stopped."""
    tenant, workload, request = *parse_workload(name), request_id_of(request_id)
    slots = sorted(set(slot or ()))
    ask_and_follow(
        name,
        state_dir,
        as_json,
        lambda it: it.replace(tenant, workload, slots=slots, request_id=request, reason=reason),
        None if no_wait else timeout,
    )
