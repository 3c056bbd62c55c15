"""What admission makes of requests that came together: each sees what those before it left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any

from durable.authority.audit.chain import Event
from durable.authority.workloads.ledger import RequestIdentity, RequestLedger
from durable.authority.workloads.rows import RowKey
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
)

# How many replicas there are, where, and how long waits may last: none of it is what one runs.
_SCALE = frozenset({"replicas", "weights", "minimum", "deadlines"})
_AUDITED = {"generation", "spec", "share"}

Shares = Mapping[RegionId, tuple[int, ...]]
Divide = Callable[[AdmittedWorkload | None], Shares]


@dataclass(frozen=True)
class AdmissionRequest:
    """A manifest to admit, once per request id.

    `divide` splits the replicas over regions, given the current workload, or None if there is none.
    It is called with the workload locked, perhaps more than once, and must depend on nothing else
    that the transaction could miss. A scale names the spec that it `scales`, and is refused if the
    workload has another one by now.
    """

    manifest: WorkloadManifest
    request: str
    actor: ActorId
    divide: Divide
    scales: WorkloadSpec | None = None
    reason: str = ""

    @property
    def key(self) -> RowKey:
        return (str(self.manifest.tenant), str(self.manifest.name))

    @property
    def replicas(self) -> int:
        return self.manifest.spec.replicas

    @cached_property
    def identity(self) -> RequestIdentity:
        manifest = self.manifest
        if self.scales is None:
            return RequestIdentity.of_apply(manifest, self.request, self.actor)
        return RequestIdentity.of_scale(
            manifest.tenant, manifest.name, self.replicas, self.request, self.actor
        )

    @property
    def can_create(self) -> bool:
        """Whether it may create a workload, whose replicas can be divided at all."""
        return self.scales is None and not isinstance(self._first_shares, RefusedError)

    def shares(self, current: AdmittedWorkload | None) -> Shares:
        if current is not None:
            return self.divide(current)
        if isinstance(self._first_shares, RefusedError):
            raise self._first_shares
        return self._first_shares

    @cached_property
    def _first_shares(self) -> Shares | RefusedError:
        try:
            return self.divide(None)
        except RefusedError as error:
            return error


class AdmissionBatch:
    """The locked workloads of one batch, and what its requests make of them in their order."""

    def __init__(
        self, workloads: Mapping[RowKey, AdmittedWorkload], ledger: RequestLedger, now: datetime
    ) -> None:
        self._now = now
        self.workloads = dict(workloads)
        self.changed: dict[RowKey, AdmittedWorkload] = {}
        self.events: list[Event] = []
        self._ledger = ledger

    def admit(self, request: AdmissionRequest) -> AdmittedWorkload | Refusal:
        try:
            answer = self._ledger.recall(request.identity)
            if answer is not None:
                return AdmittedWorkload.read(answer)
            return self._admit(request)
        except RefusedError as error:
            return error.refusal

    def _admit(self, request: AdmissionRequest) -> AdmittedWorkload:
        before = self.workloads.get(request.key)
        if before is not None and before.deleting:
            raise RefusedError(
                RefusalCode.BEING_DELETED,
                f"Workload {before.tenant}/{before.workload} is being deleted; "
                "wait until it is gone, then apply it again.",
            )
        if request.scales is not None and not _is_live(before, request.scales):
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"Workload {'/'.join(request.key)} was changed meanwhile; send the request again.",
            )
        after = _admitted(request, before, self._now)
        if before != after:
            self.workloads[request.key] = self.changed[request.key] = after
            self.events.append(_event(before, after, request))
        self._ledger.record(request.identity, after.model_dump(mode="json"))
        return after


def _is_live(workload: AdmittedWorkload | None, spec: WorkloadSpec) -> bool:
    return workload is not None and not workload.deleted and workload.spec == spec


def _admitted(
    request: AdmissionRequest, before: AdmittedWorkload | None, now: datetime
) -> AdmittedWorkload:
    manifest = request.manifest
    current = None if before is None or before.deleted else before
    shares = request.shares(current)
    slots = list(chain.from_iterable(shares.values()))
    assert len(set(slots)) == len(slots), "a slot belongs to one region"
    if before is None:
        generation = 1
    elif current is None or template_of(before.spec) != template_of(manifest.spec):
        generation = before.generation + 1
    else:
        generation = before.generation
    same = before if before is not None and before.generation == generation else None
    return AdmittedWorkload(
        tenant=manifest.tenant,
        workload=manifest.name,
        generation=generation,
        spec=manifest.spec,
        share=shares,
        # A deadline counts from here, so nothing but another generation moves it.
        admitted_at=now if same is None else same.admitted_at,
        deadline_missed_at=None if same is None else same.deadline_missed_at,
    )


def template_of(spec: WorkloadSpec) -> dict[str, Any]:
    """What all replicas of one generation have in common; a job is one piece of work, so all."""
    kept = _SCALE if spec.kind is WorkloadKind.SERVICE else frozenset({"deadlines"})
    return spec.model_dump(mode="json", exclude=set(kept))


def _event(
    before: AdmittedWorkload | None, after: AdmittedWorkload, request: AdmissionRequest
) -> Event:
    said = {"kind": request.identity.kind, "request": request.request, "reason": request.reason}
    return Event(
        actor=request.actor,
        action="apply workload",
        target=f"workload/{after.tenant}/{after.workload}",
        before=None if before is None else before.model_dump(mode="json", include=_AUDITED),
        after={**after.model_dump(mode="json", include=_AUDITED), **said},
    )
