"""What becomes of asks that came together: each finds the workload as those before it left it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from durable.authority.audit.chain import Event
from durable.authority.workloads.answers import Answers, Asked
from durable.authority.workloads.bulk import WorkloadKey
from durable.authority.workloads.rows import Admission
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import WorkloadKind, WorkloadManifest, WorkloadSpec

# How many there are, where, and how long waits may last: none of it is what a replica runs.
_SCALE = frozenset({"replicas", "weights", "minimum", "deadlines"})
_TOLD = {"generation", "spec", "share"}

ShareOf = Callable[[Admission | None], Mapping[RegionId, tuple[int, ...]]]


@dataclass(frozen=True)
class Ask:
    """A manifest that somebody wants to be taken in, once per request id.

    `share_of` divides the replicas, given the workload as it stands or None if there is none. It
    is called with the workload locked, perhaps more than once, and must depend on nothing else
    that the transaction could miss.
    """

    manifest: WorkloadManifest
    request: str
    actor: ActorId
    share_of: ShareOf

    @property
    def key(self) -> WorkloadKey:
        return (str(self.manifest.tenant), str(self.manifest.name))

    @cached_property
    def asked(self) -> Asked:
        payload = self.manifest.model_dump(mode="json", exclude_defaults=True)
        return Asked(*self.key, self.request, payload, self.actor)

    @cached_property
    def first_share(self) -> Mapping[RegionId, tuple[int, ...]] | RefusedError:
        """The share of a workload that does not stand yet, or why there is none."""
        try:
            return self.share_of(None)
        except RefusedError as error:
            return error

    def share(self, standing: Admission | None) -> Mapping[RegionId, tuple[int, ...]]:
        if standing is not None:
            return self.share_of(standing)
        if isinstance(self.first_share, RefusedError):
            raise self.first_share
        return self.first_share


class Turns:
    """The workloads of one batch, locked, and what its asks make of them in their order."""

    def __init__(self, standing: Mapping[WorkloadKey, Admission], answers: Answers) -> None:
        self.standing = dict(standing)
        self.changed: dict[WorkloadKey, Admission] = {}
        self.events: list[Event] = []
        self._answers = answers

    def take(self, ask: Ask) -> Admission | Refusal:
        try:
            answered = self._answers.recall(ask.asked)
            return self._admit(ask) if answered is None else answered
        except RefusedError as error:
            return error.refusal

    def _admit(self, ask: Ask) -> Admission:
        before = self.standing.get(ask.key)
        if before is not None and before.deleting:
            raise RefusedError(
                RefusalCode.BEING_DELETED,
                f"Workload {before.tenant}/{before.workload} is being deleted; "
                "wait until it is gone, then apply it again.",
            )
        after = _admitted(ask, before)
        if before != after:
            self.standing[ask.key] = self.changed[ask.key] = after
            self.events.append(_event(before, after, ask.actor))
        self._answers.record(ask.asked, after)
        return after


def _admitted(ask: Ask, before: Admission | None) -> Admission:
    manifest = ask.manifest
    standing = None if before is None or before.deleted else before
    share = ask.share(standing)
    slots = list(chain.from_iterable(share.values()))
    assert len(set(slots)) == len(slots), "a slot belongs to one region"
    if before is None:
        generation = 1
    elif standing is None or template_of(before.spec) != template_of(manifest.spec):
        generation = before.generation + 1
    else:
        generation = before.generation
    return Admission(
        tenant=manifest.tenant,
        workload=manifest.name,
        generation=generation,
        spec=manifest.spec,
        share=share,
    )


def template_of(spec: WorkloadSpec) -> dict[str, Any]:
    """What every replica of one generation has in common; a job is one piece of work, so all."""
    kept = _SCALE if spec.kind is WorkloadKind.SERVICE else frozenset({"deadlines"})
    return spec.model_dump(mode="json", exclude=set(kept))


def _event(before: Admission | None, after: Admission, actor: ActorId) -> Event:
    return Event(
        actor=actor,
        action="apply workload",
        target=f"workload/{after.tenant}/{after.workload}",
        before=None if before is None else before.model_dump(mode="json", include=_TOLD),
        after=after.model_dump(mode="json", include=_TOLD),
    )
