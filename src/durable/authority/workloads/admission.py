"""What admission makes of requests that came together: each sees what those before it left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any

from durable.authority.audit.chain import Event
from durable.authority.operators.authorization import Authorizer
from durable.authority.operators.ledger import RequestLedger
from durable.authority.workloads.rows import RowKey
from durable.model.ids import RegionId
from durable.model.operators.rights import OperatorMessage, Scope, Verb
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.work.rollout import RolloutState
from durable.model.work.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
    template_of,
)

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
    message: OperatorMessage
    divide: Divide
    scales: WorkloadSpec | None = None

    @property
    def verb(self) -> Verb:
        return Verb.APPLY if self.scales is None else Verb.SCALE

    @property
    def key(self) -> RowKey:
        return (str(self.manifest.tenant), str(self.manifest.name))

    @property
    def replicas(self) -> int:
        return self.manifest.spec.replicas

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
        self,
        workloads: Mapping[RowKey, AdmittedWorkload],
        ledger: RequestLedger,
        stable: Mapping[RowKey, WorkloadSpec],
        authorizer: Authorizer,
        now: datetime,
    ) -> None:
        self.workloads = dict(workloads)
        self.changed: dict[RowKey, AdmittedWorkload] = {}
        self.events: list[Event] = []
        # Generations that begin, as rows of the history.
        self.generations: list[dict[str, Any]] = []
        # Workloads that leave a generation for a new one, as they were.
        self.left: list[AdmittedWorkload] = []
        # Workloads that go back to what they were, with the generation that they leave.
        self.rolled_back: list[tuple[AdmittedWorkload, str]] = []
        self._ledger = ledger
        # What runs where a rollout has not come to yet; applied again, it rolls back.
        self._stable = stable
        self._authorizer = authorizer
        self._now = now

    def admit(self, request: AdmissionRequest) -> AdmittedWorkload | Refusal:
        try:
            answer = self._ledger.recall(request.message)
            if answer is not None:
                return AdmittedWorkload.read(answer)
            # What was answered before is answered again, whatever became of the right.
            scope = Scope(tenant=request.manifest.tenant)
            self._authorizer.check(request.message, request.verb, scope)
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
        after = self._admitted(request, before)
        if before != after:
            after = after.model_copy(update={"revision": after.revision + 1})
            self.workloads[request.key] = self.changed[request.key] = after
            self.events.append(_event(before, after, request))
            if before is None or after.generations > before.generations:
                self.generations.append(_generation_row(after, request))
                self.left += [] if before is None else [before]
        self._ledger.record(request.message, after.model_dump(mode="json"))
        return after

    def _admitted(
        self, request: AdmissionRequest, before: AdmittedWorkload | None
    ) -> AdmittedWorkload:
        manifest = request.manifest
        current = None if before is None or before.deleted else before
        shares = request.shares(current)
        slots = list(chain.from_iterable(shares.values()))
        assert len(set(slots)) == len(slots), "a slot belongs to one region"
        wanted = AdmittedWorkload(
            tenant=manifest.tenant,
            workload=manifest.name,
            generation=1,
            spec=manifest.spec,
            share=shares,
            admitted_at=self._now,
        )
        if before is None:
            return wanted
        issued = {"generations": before.generations, "revision": before.revision}
        if current is None:
            return _next_generation(wanted.model_copy(update=issued), None, self._now)
        # A deadline counts from the admission, so nothing but another generation moves it.
        kept = {
            "generation", "generations", "stable_generation", "rollout", "revision", "admitted_at",
            "deadline_missed_at", "incident",
        }  # fmt: skip
        wanted = wanted.model_copy(
            update=current.model_dump(include=kept) | {"rollout": current.rollout}
        )
        if template_of(current.spec) == template_of(manifest.spec):
            return wanted
        if manifest.spec.kind is WorkloadKind.JOB:
            return _next_generation(wanted, None, self._now)
        if self._is_stable(request.key, manifest.spec):
            why = f"an apply of what was before ({request.message.request_id})"
            self.rolled_back.append((current, why))
            return _back_to_stable(wanted, self._now, why)
        rollout = RolloutState(started_at=self._now, progressed_at=self._now)
        return _next_generation(wanted, rollout, self._now)

    def _is_stable(self, key: RowKey, spec: WorkloadSpec) -> bool:
        stable = self._stable.get(key)
        return stable is not None and template_of(stable) == template_of(spec)


def _next_generation(
    wanted: AdmittedWorkload, rollout: RolloutState | None, now: datetime
) -> AdmittedWorkload:
    number = wanted.generations + 1
    begins = {"admitted_at": now, "deadline_missed_at": None}
    return wanted.model_copy(
        update={"generation": number, "generations": number, "rollout": rollout, **begins}
    )


def _back_to_stable(wanted: AdmittedWorkload, now: datetime, why: str) -> AdmittedWorkload:
    """What did not change yet stays as it is; what did goes back."""
    rollout = RolloutState(started_at=now, progressed_at=now, rollback=why)
    return wanted.model_copy(update={"generation": wanted.stable_generation, "rollout": rollout})


def _is_live(workload: AdmittedWorkload | None, spec: WorkloadSpec) -> bool:
    return workload is not None and not workload.deleted and workload.spec == spec


def _generation_row(workload: AdmittedWorkload, request: AdmissionRequest) -> dict[str, Any]:
    return {
        **workload.model_dump(mode="json", include={"tenant", "workload", "generation", "spec"}),
        "actor": str(request.message.actor),
        "reason": request.message.reason,
    }


def _event(
    before: AdmittedWorkload | None, after: AdmittedWorkload, request: AdmissionRequest
) -> Event:
    message = request.message
    said = {
        "kind": message.message, "request": message.request_id, "reason": message.reason,
    }  # fmt: skip
    return Event(
        actor=message.actor,
        action="apply workload",
        target=f"workload/{after.tenant}/{after.workload}",
        before=None if before is None else before.model_dump(mode="json", include=_AUDITED),
        after={**after.model_dump(mode="json", include=_AUDITED), **said},
    )
