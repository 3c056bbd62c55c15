"""`durable scale` and `durable delete`: change one workload by its name."""

from typing import Annotated

import typer

from durable.cli.connections import with_durable
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Reason,
    StateDir,
    Timeout,
    WorkloadArgument,
    parse_workload,
    request_id_of,
)
from durable.cli.render.following import reassure_when_interrupted
from durable.cli.render.output import print_json, results
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import wait_for_all
from durable.cli.render.workloads import AppliedWorkload, applied_row, print_applied
from durable.client import Durable
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import MAX_REPLICAS, WorkloadManifest


def scale(
    name: WorkloadArgument,
    replicas: Annotated[
        int, typer.Argument(metavar="REPLICAS", min=0, max=MAX_REPLICAS, help="The new count.")
    ],
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable scale",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Change the replica count of a workload."""
    tenant, workload = parse_workload(name)
    request = request_id_of(request_id)

    async def scale_and_wait(durable: Durable) -> AppliedWorkload:
        admitted = await durable.scale(
            tenant, workload, replicas, request_id=request, reason=reason
        )
        manifest = WorkloadManifest(tenant=tenant, name=workload, spec=admitted.spec)
        awaited = [] if no_wait else [WaitTarget.of(manifest)]
        statuses = await wait_for_all(durable, awaited, timeout)
        return applied_row(manifest, admitted, statuses[0] if statuses else None)

    with reassure_when_interrupted():
        row = with_durable(state_dir, scale_and_wait, within_seconds=timeout)
    if as_json:
        print_json(row)
    else:
        print_applied([row])


def delete(
    name: WorkloadArgument,
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable delete",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete a workload: stop its replicas and release what they hold."""
    tenant, workload = parse_workload(name)
    request = request_id_of(request_id)

    async def delete_and_wait(durable: Durable) -> None:
        await durable.delete(tenant, workload, request_id=request, reason=reason)
        now = await durable.admitted(tenant, workload)
        if now is not None and not (now.deleting or now.deleted):
            raise RefusedError(
                RefusalCode.CREATED_SINCE,
                f"Request {request} was already answered: it deleted an earlier {name}, which was "
                "created again since. To delete it, send another --request-id.",
            )
        awaited = [] if no_wait else [WaitTarget(tenant, workload, "deleted")]
        await wait_for_all(durable, awaited, timeout)

    with reassure_when_interrupted():
        with_durable(state_dir, delete_and_wait, within_seconds=timeout)
    if as_json:
        print_json({"workload": name, "deleted": not no_wait})
    else:
        outcome = "is being deleted" if no_wait else "deleted"
        results.print(f"{name} {outcome}.")
