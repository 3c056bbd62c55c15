"""The steps of an override: propose, change, expire, and spread to the regions that it means.

What people ask for is one transaction on the global side; what follows is copied to regions by
number. A step that was sent again after a crash or a timeout finds what it did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, Field
from temporalio import activity
from temporalio.client import Client

from durable.activities.failures import refusal_failure
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.overrides.changes import (
    Change,
    ChangeKind,
    change_override,
    expire_override,
)
from durable.authority.overrides.checks import check_gates, check_incident, check_places
from durable.authority.overrides.copies import CopyResult, copy_override
from durable.authority.overrides.proposals import OverrideProposal, propose_override
from durable.authority.overrides.rows import read_override, unknown_override
from durable.failpoints import Failpoint, reach
from durable.model.ids import OverrideId, RegionId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, OrderAnswer
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.override import Override, effects_of
from durable.model.refusal import RefusedError
from durable.model.states import OverrideState
from durable.signals.names import override_of, workload_id
from durable.signals.overrides import ExtendOverride, ProposeOverride
from durable.signals.payloads import Look
from durable.signals.sending import SignalSender
from durable.validation.quantities import show_duration
from durable.validation.value import Value


class OverrideReading(Value):
    """The override as the authority has it, and the time there."""

    override: Override | None
    now: AwareDatetime
    # What the sender of a message is answered.
    answer: str = ""


class Spread(Value):
    """Which regions obey the override as it is now, and which could not be asked."""

    number: int
    regions: tuple[RegionId, ...] = ()
    unreachable: Mapping[RegionId, str] = Field(default={})


class OverrideActivities:
    """Steps of the global worker, which reaches every region's database."""

    def __init__(self, databases: Databases, client: Client) -> None:
        self._databases = databases
        self._sender = SignalSender(client)

    @activity.defn
    async def recall_override(self, override: OverrideId) -> OverrideReading:
        """What the authority knows of it."""
        found = await read_override(self._databases, override)
        return OverrideReading(override=found, now=await self._now())

    @activity.defn
    async def propose_override(self, message: OperatorMessage) -> OverrideReading:
        """Records what a person proposes, once per id."""
        id, proposed = override_of(message.workflow_id), message.payload_as(ProposeOverride)
        effects = effects_of(proposed.of_kind, proposed.scope, proposed.effect)
        unasked: UnreachableRegions = {}
        try:
            if await read_override(self._databases, id) is None:
                await check_places(self._databases, proposed.scope)
                await check_incident(self._databases, proposed.scope, effects.budget)
                regions = await self._regions(proposed.scope)
                unasked = await check_gates(self._databases, regions, effects)
            answered = await propose_override(
                self._databases,
                OverrideProposal(
                    id=id,
                    kind=proposed.of_kind,
                    scope=proposed.scope,
                    effect=dict(proposed.effect),
                    ttl=proposed.lasts,
                    ticket=proposed.ticket or "",
                ),
                message,
            )
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_PROPOSE_OVERRIDE)
        return await self._reading(answered, unasked)

    @activity.defn
    async def change_override(self, message: OperatorMessage) -> OverrideReading:
        """Approves, rejects, revokes or extends it, once per request id."""
        id, kind = override_of(message.workflow_id), ChangeKind(message.message)
        extends = kind is ChangeKind.EXTEND
        change = Change(
            id, kind, message.payload_as(ExtendOverride).by if extends else timedelta(0)
        )
        unasked: UnreachableRegions = {}
        try:
            if change.kind is ChangeKind.APPROVE:
                unasked = await self._check_gates(id)
            answered = await change_override(self._databases, change, message)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_CHANGE_OVERRIDE)
        return await self._reading(answered, unasked)

    @activity.defn
    async def expire_override(self, override: OverrideId) -> OverrideReading:
        """Records that its time is over, if it is by the database's clock."""
        found = await expire_override(self._databases, override)
        return OverrideReading(override=found, now=await self._now())

    @activity.defn
    async def spread_override(self, id: OverrideId) -> Spread:
        """Has every region that it means obey it as it is now; those that do not answer, later.

        What it is now, the authority's row says: a workflow is not believed about that.
        """
        override = await read_override(self._databases, id)
        if override is None:
            raise refusal_failure(unknown_override(id))
        if override.state is OverrideState.PROPOSED or override.activated_at is None:
            return Spread(number=override.number)
        meant = override.regions(await list_regions(self._databases))
        copied = await ask_regions(meant, lambda one: self._copy(one, override))
        unreachable, regions = dict(copied.unreachable), list[RegionId]()
        for region, one in copied.by_region.items():
            if isinstance(one, RefusedError):
                unreachable[region] = str(one)
                continue
            regions.append(region)
            await self._have_workloads_look(region, one.shares, override)
        return Spread(number=override.number, regions=tuple(regions), unreachable=unreachable)

    async def _copy(self, region: RegionId, override: Override) -> CopyResult | RefusedError:
        """The refusal of one region is no reason for another to wait."""
        try:
            copied = await copy_override(self._databases, region, override)
        except RefusedError as refused:
            return refused
        reach(Failpoint.AFTER_COPY_OVERRIDE)
        return copied

    async def _check_gates(self, id: OverrideId) -> UnreachableRegions:
        override = await read_override(self._databases, id)
        if override is None or override.state is not OverrideState.PROPOSED:
            return {}
        regions = override.regions(await list_regions(self._databases))
        return await check_gates(self._databases, regions, override.effects)

    async def _reading(
        self, answered: OrderAnswer[Override], unasked: UnreachableRegions
    ) -> OverrideReading:
        answer = answered.sentence
        if unasked:
            answer += f" Could not ask which gates may be skipped in {', '.join(unasked)}."
        return OverrideReading(override=answered.target, now=await self._now(), answer=answer)

    async def _regions(self, scope: OverrideScope) -> list[RegionId]:
        known = await list_regions(self._databases)
        return [region for region in known if scope.region in (None, region)]

    async def _now(self) -> datetime:
        return await read_time(self._databases)

    async def _have_workloads_look(
        self, region: RegionId, shares: Iterable[tuple[str, str, int]], override: Override
    ) -> None:
        """Hints at once; what is lost is found by the status controller's sweep."""
        lasts = "" if override.has_ended else f" for {show_duration(override.ttl)}"
        why = f"override {override.id} changed where it may be placed{lasts}"
        await self._sender.send_all(
            (
                workload_id(TenantId(tenant), WorkloadName(workload)),
                "look",
                Look(why=why, region=region, generation=generation),
            )
            for tenant, workload, generation in sorted(shares)
        )

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.recall_override, self.propose_override, self.change_override,
            self.expire_override, self.spread_override,
        )  # fmt: skip
