"""Manifests sent one after the other, and what is said of one whose request was answered before."""

from collections.abc import Mapping, Sequence

from durable.activities.steps import Admitted
from durable.authority.workloads import Admission, list_workloads, read_workload
from durable.cli.render.output import progress
from durable.client import Durable
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadKind, WorkloadManifest


async def admit_all(
    durable: Durable, manifests: Sequence[WorkloadManifest], ids: Mapping[str, str], reason: str
) -> dict[str, Admitted]:
    """One after the other; the first refusal stops, and says what was applied before it."""
    done: dict[str, Admitted] = {}
    for manifest in manifests:
        name = key_of(manifest)
        before = await read_workload(durable.databases, manifest.tenant, manifest.name)
        try:
            admitted = await durable.apply(manifest, request_id=ids[name], reason=reason)
            await _refuse_deleted_since(durable, manifest, admitted, ids[name])
        except RefusedError as error:
            so_far = f"Applied before it: {', '.join(done)}." if done else "Nothing was applied."
            sentence = f"{name} was refused: {error} {so_far}"
            raise RefusedError(error.refusal.code, sentence[:500]) from error
        done[name] = admitted
        said, generation = _said(before, admitted), admitted.answered_generation
        progress.print(f"[green]✓[/] {said} {name}, generation {generation}")
    return done


def key_of(manifest: WorkloadManifest) -> str:
    return f"{manifest.tenant}/{manifest.name}"


def _said(before: Admission | None, admitted: Admitted) -> str:
    if admitted.deleted:
        return "Was done before:"
    if before is None or before.deleted:
        return "Applied"
    was = (before.generation, before.spec, before.share)
    return (
        "Unchanged:" if was == (admitted.generation, admitted.spec, admitted.share) else "Applied"
    )


async def _refuse_deleted_since(
    durable: Durable, manifest: WorkloadManifest, admitted: Admitted, request_id: str
) -> None:
    """An answer of the past says nothing of the present; a job that was done stays done."""
    if not (admitted.deleting or admitted.deleted):
        return
    if manifest.spec.kind is WorkloadKind.JOB and await _was_done(durable, manifest):
        return
    now = "is being deleted" if admitted.deleting else "has been deleted since"
    raise RefusedError(
        RefusalCode.BEING_DELETED if admitted.deleting else RefusalCode.DELETED_SINCE,
        f"Request {request_id} was answered before, with generation "
        f"{admitted.answered_generation}, and the workload {now}. To have it again, apply it "
        "under another --request-id.",
    )


async def _was_done(durable: Durable, manifest: WorkloadManifest) -> bool:
    ended = await list_workloads(durable.databases, manifest.tenant, deleted=True)
    mine = next((row for row in ended if row.workload == manifest.name), None)
    return mine is not None and mine.deleted and mine.end != "deleted"
