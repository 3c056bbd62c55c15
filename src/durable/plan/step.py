"""What admission would make of a manifest: the same rules, without writing."""

from collections.abc import Mapping
from enum import StrEnum

from durable.model.ids import Generation, RegionId
from durable.model.work.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
    template_of,
)


class Action(StrEnum):
    """What the desired state becomes."""

    CREATE = "create"
    ROLL_OUT = "roll out a new generation"
    GO_BACK = "go back to the last good generation"
    SCALE = "change the size or the shares"
    NOTHING = "no change"


def next_step(
    manifest: WorkloadManifest,
    before: AdmittedWorkload | None,
    shares: Mapping[RegionId, tuple[int, ...]],
    stable: WorkloadSpec | None,
) -> tuple[Action, Generation]:
    """The action and the generation that is wanted then; `stable` is what a rollout comes from."""
    if before is None:
        return Action.CREATE, 1
    if before.deleted:
        return Action.CREATE, before.generations + 1
    wanted = template_of(manifest.spec)
    if template_of(before.spec) == wanted:
        same = before.spec == manifest.spec and dict(before.share) == dict(shares)
        return (Action.NOTHING if same else Action.SCALE), before.generation
    is_service = manifest.spec.kind is WorkloadKind.SERVICE
    good = before.stable_generation
    if is_service and good is not None and stable is not None and template_of(stable) == wanted:
        return Action.GO_BACK, good
    return Action.ROLL_OUT, before.generations + 1
