"""`durable apply`: submits manifests one after the other, and waits for what they describe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from durable.activities.workload_steps import AdmissionAnswer
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
from durable.cli.render.output import error_object, fail, print_json, progress
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import wait_for_all
from durable.cli.render.workloads import (
    AppliedWorkload,
    applied_row,
    failure_of,
    print_applied,
    undone_of,
)
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
    """Create or change workloads, and wait until they serve or complete."""
    manifests = load_workloads(file)
    with reassure_when_interrupted():
        rows = apply_all(
            manifests,
            timeout_seconds=timeout,
            waits=not no_wait,
            request_id=request_id,
            reason=reason,
            state_dir=state_dir,
        )
    failure = undone_of(rows) or failure_of(rows)
    if as_json:
        content = [row.model_dump(mode="json") for row in rows]
        code = "rolled_back" if undone_of(rows) else "failed"
        print_json({"workloads": content, **error_object(code, failure)})
    else:
        print_applied(rows)
    if failure is not None:
        fail(failure)


def apply_all(
    manifests: Sequence[WorkloadManifest],
    *,
    timeout_seconds: float,
    waits: bool = True,
    request_id: str | None,
    reason: str,
    state_dir: Path | None,
) -> list[AppliedWorkload]:
    """Applies manifests, and waits for all of them unless told not to."""
    return with_durable(
        state_dir,
        lambda durable: apply_with(
            durable,
            manifests,
            timeout_seconds=timeout_seconds,
            waits=waits,
            request_id=request_id,
            reason=reason,
        ),
        within_seconds=timeout_seconds,
    )


async def apply_with(
    durable: Durable,
    manifests: Sequence[WorkloadManifest],
    *,
    timeout_seconds: float,
    waits: bool = True,
    request_id: str | None = None,
    reason: str,
) -> list[AppliedWorkload]:
    """The same by a connection that exists."""
    request_ids = {_name_of(one): request_id_of(request_id) for one in manifests}
    submitted = await _submit_all(durable, manifests, request_ids, reason)
    statuses = {}
    undone: dict[WaitTarget, str] = {}
    if waits:
        # A job that already completed under this request id does not run again.
        pending = [one for one in manifests if not submitted[_name_of(one)].has_ended]
        targets = [WaitTarget.of(one) for one in pending]
        last = await wait_for_all(durable, targets, timeout_seconds, undone)
        statuses = {f"{status.tenant}/{status.workload}": status for status in last}
    return [
        applied_row(
            one,
            submitted[_name_of(one)].answer,
            statuses.get(_name_of(one)),
            has_ended=submitted[_name_of(one)].has_ended,
            undone=undone.get(WaitTarget.of(one)),
        )
        for one in manifests
    ]


@dataclass(frozen=True)
class _AppliedManifest:
    """What a request was answered, and whether the workload has ended since."""

    answer: AdmissionAnswer
    has_ended: bool


async def _submit_all(
    durable: Durable,
    manifests: Sequence[WorkloadManifest],
    request_ids: Mapping[str, str],
    reason: str,
) -> dict[str, _AppliedManifest]:
    """Submits in order; the first refusal stops, and says what was applied before it."""
    done: dict[str, _AppliedManifest] = {}
    for manifest in manifests:
        name = _name_of(manifest)
        before = await durable.admitted(manifest.tenant, manifest.name)
        try:
            answer = await durable.apply(manifest, request_id=request_ids[name], reason=reason)
            now = await durable.admitted(manifest.tenant, manifest.name)
            assert now is not None, "a workload keeps its row"
            _refuse_deleted_since(manifest, answer, now, request_ids[name])
        except RefusedError as error:
            so_far = f"Applied before it: {', '.join(done)}." if done else "Nothing was applied."
            sentence = f"{name} was refused: {error} {so_far}"
            raise RefusedError(error.refusal.code, sentence) from error
        done[name] = _AppliedManifest(answer, now.deleted)
        progress.print(
            f"[green]✓[/] {name} {_outcome(before, now)}, generation {answer.generation}"
        )
    return done


def _name_of(manifest: WorkloadManifest) -> str:
    return f"{manifest.tenant}/{manifest.name}"


def _outcome(before: AdmittedWorkload | None, now: AdmittedWorkload) -> str:
    if now.deleted:
        return "already completed"
    if before is None or before.deleted:
        return "created"
    old, new = ((one.generation, one.spec, one.share) for one in (before, now))
    return "unchanged" if old == new else "changed"


def _refuse_deleted_since(
    manifest: WorkloadManifest, answer: AdmissionAnswer, now: AdmittedWorkload, request_id: str
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
