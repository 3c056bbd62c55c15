"""`durable apply`, `scale` and `delete`: the desired state, and the wait until it is so."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from durable.cli.input.names import Name, workload_named
from durable.cli.input.options import AsJson, StateDir
from durable.cli.input.workload_files import Files, load_workloads
from durable.cli.render.admitting import admit_all, key_of
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import reassure_when_interrupted, wait_for_all
from durable.cli.render.workloads import (
    AppliedWorkload,
    applied_row,
    failure_of,
    print_applied,
)
from durable.cli.sdk import with_durable
from durable.client import Durable
from durable.model.workload import MAX_REPLICAS, WorkloadManifest
from durable.signals.messages import RequestId

_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is admitted.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, max=86_400, help="Seconds to wait at most.")
]
Request = Annotated[
    str | None,
    typer.Option("--request-id", help="Sent again under this id, a change counts once."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]


def apply(
    file: Files,
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: Request = None,
    reason: Reason = "durable apply",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Set the desired state of workloads, and show them on their way until all serve."""
    manifests = load_workloads(file)
    with reassure_when_interrupted():
        rows = apply_all(manifests, no_wait, timeout, request_id, reason, state_dir)
    failure = failure_of(rows)
    if as_json:
        shown = [row.model_dump(mode="json") for row in rows]
        print_json({"workloads": shown, **error_object("failed", failure)})
    else:
        print_applied(rows)
    if failure is not None:
        fail(failure)


def apply_all(
    manifests: Sequence[WorkloadManifest],
    no_wait: bool,
    timeout: float,
    request_id: str | None,
    reason: str,
    state_dir: Path | None,
) -> list[AppliedWorkload]:
    """Applies manifests and follows them until all have come so far."""
    ids = {key_of(one): _request_id(request_id, key_of(one)) for one in manifests}

    async def work(durable: Durable) -> list[AppliedWorkload]:
        admitted = await admit_all(durable, manifests, ids, reason)
        # A job that was done under this request id is not done again: nothing is to be waited for.
        waits = [] if no_wait else [m for m in manifests if not admitted[key_of(m)].deleted]
        statuses = await wait_for_all(durable, [WaitTarget.of(one) for one in waits], timeout)
        last = {f"{status.tenant}/{status.workload}": status for status in statuses}
        return [applied_row(one, admitted[key_of(one)], last.get(key_of(one))) for one in manifests]

    return with_durable(state_dir, work)


def scale(
    name: Name,
    replicas: Annotated[int, typer.Argument(min=0, max=MAX_REPLICAS, help="How many.")],
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: Request = None,
    reason: Reason = "durable scale",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Another number of replicas; everything else stays."""
    tenant, workload = workload_named(name)
    request = _request_id(request_id, f"{tenant}/{workload}")

    async def work(durable: Durable) -> AppliedWorkload:
        of = (tenant, workload, replicas)
        admitted = await durable.scale(*of, request_id=request, reason=reason)
        manifest = WorkloadManifest(tenant=tenant, name=workload, spec=admitted.spec)
        waits = [] if no_wait else [WaitTarget.of(manifest)]
        last = await wait_for_all(durable, waits, timeout)
        return applied_row(manifest, admitted, last[0] if last else None)

    with reassure_when_interrupted():
        row = with_durable(state_dir, work)
    if as_json:
        print_json(row)
    else:
        print_applied([row])


def delete(
    name: Name,
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: Request = None,
    reason: Reason = "durable delete",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop and release everything of a workload, and wait until it is gone."""
    tenant, workload = workload_named(name)
    request = _request_id(request_id, f"{tenant}/{workload}")

    async def work(durable: Durable) -> None:
        await durable.delete(tenant, workload, request_id=request, reason=reason)
        waits = [] if no_wait else [WaitTarget(tenant, workload, "deleted")]
        await wait_for_all(durable, waits, timeout)

    with reassure_when_interrupted():
        with_durable(state_dir, work)
    if as_json:
        print_json({"workload": f"{tenant}/{workload}", "gone": not no_wait})
    else:
        done = "is being deleted" if no_wait else "is gone"
        results.print(f"{tenant}/{workload} {done}.")


def _request_id(prefix: str | None, name: str) -> str:
    given = f"cli-{uuid.uuid4()}" if prefix is None else f"{prefix}/{name}"
    try:
        return _REQUEST_ID.validate_python(given)
    except ValidationError:
        raise typer.BadParameter(
            f"got {prefix!r}; allowed: letters, digits and . _ : @ / -, up to 128 with "
            f"/{name} behind it",
            param_hint="--request-id",
        ) from None
