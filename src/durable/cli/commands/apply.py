"""`durable apply`: submits manifests one after the other, and waits for what they describe."""

from collections.abc import Sequence

from durable.cli.connections import with_durable
from durable.cli.input.manifests import Files, load_workloads
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Reason,
    StateDir,
    Timeout,
    request_id_of,
)
from durable.cli.render.following import reassure_when_interrupted
from durable.cli.render.output import conclude, progress
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import wait_for_all
from durable.cli.render.workloads import AppliedWorkload, failure_of, print_applied, rollback_of
from durable.client import Durable
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload, WorkloadKind, WorkloadManifest


def apply(
    file: Files,
    no_wait: NoWait = False,
    timeout: Timeout = 300.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable apply",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    manifests = load_workloads(file)
    within = None if no_wait else timeout
    with reassure_when_interrupted():
        rows = with_durable(
            state_dir,
            lambda durable: apply_all(durable, manifests, within, request_id, reason=reason),
            within_seconds=timeout,
        )
    rolled_back = rollback_of(rows)
    conclude(
        as_json,
        {"workloads": rows},
        lambda: print_applied(rows),
        failure=rolled_back or failure_of(rows),
        code="rolled_back" if rolled_back else "failed",
    )


async def apply_all(
    durable: Durable,
    manifests: Sequence[WorkloadManifest],
    within_seconds: float | None,
    request_id: str | None = None,
    *,
    reason: str,
) -> list[AppliedWorkload]:
    """Applies manifests, and waits for all of them if there is time to."""
    rows = await _submit_all(durable, manifests, request_id, reason)
    if within_seconds is None:
        return rows
    # A job that already completed under this request id does not run again.
    targets = {
        row.workload: WaitTarget.of(manifest)
        for row, manifest in zip(rows, manifests, strict=True)
        if row.phase != ENDED
    }
    why: dict[WaitTarget, str] = {}
    last = await wait_for_all(durable, [*targets.values()], within_seconds, why)
    statuses = {f"{status.tenant}/{status.workload}": status for status in last}
    return [
        row.after(statuses[row.workload], why.get(targets[row.workload]))
        if row.workload in targets
        else row
        for row in rows
    ]


ENDED = "ended"


async def _submit_all(
    durable: Durable, manifests: Sequence[WorkloadManifest], request_id: str | None, reason: str
) -> list[AppliedWorkload]:
    """Submits in order; the first refusal stops, and says what was applied before it."""
    done: list[AppliedWorkload] = []
    requests = [request_id_of(request_id) for _ in manifests]
    for manifest, request in zip(manifests, requests, strict=True):
        name = f"{manifest.tenant}/{manifest.name}"
        before = await durable.admitted(manifest.tenant, manifest.name)
        try:
            answer = await durable.apply(manifest, request_id=request, reason=reason)
            now = await durable.admitted(manifest.tenant, manifest.name)
            assert now is not None, "a workload keeps its row"
            _refuse_deleted_since(manifest, answer, now, request)
        except RefusedError as error:
            names = ", ".join(row.workload for row in done)
            so_far = f"Applied before it: {names}." if done else "Nothing was applied."
            sentence = f"{name} was refused: {error} {so_far}"
            raise RefusedError(error.refusal.code, sentence) from error
        done.append(AppliedWorkload.of(name, answer, ENDED if now.deleted else "admitted"))
        progress.print(
            f"[green]✓[/] {name} {_outcome(before, now)}, generation {answer.generation}"
        )
    return done


def _outcome(before: AdmittedWorkload | None, now: AdmittedWorkload) -> str:
    if now.deleted:
        return "already completed"
    if before is not None and before.deleted and before.end != "deleted":
        return f"had ended as {before.end} and runs again"
    if before is None or before.deleted:
        return "created"
    old, new = ((one.generation, one.spec, one.share) for one in (before, now))
    return "unchanged" if old == new else "changed"


def _refuse_deleted_since(
    manifest: WorkloadManifest, answer: AdmittedWorkload, now: AdmittedWorkload, request_id: str
) -> None:
    """A repeated request gets its old answer, which must not pass for the present state."""
    if not (now.deleting or now.deleted):
        return
    if manifest.spec.kind is WorkloadKind.JOB and now.deleted and now.end != "deleted":
        return
    since = "is being deleted" if now.deleting else "has been deleted since"
    raise RefusedError(
        RefusalCode.BEING_DELETED if now.deleting else RefusalCode.DELETED_SINCE,
        f"Request {request_id} was already answered, with generation {answer.generation}, and the "
        f"workload {since}. To create it again, apply it under another --request-id.",
    )
