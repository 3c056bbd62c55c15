"""A policy is rolled back at every step of a placement, in one order that is the same every time.

The rollback happens inside the commit of the step, just before it or just after it. The histories
of the placements are saved beside the others, and replay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from durable.authority.cache.region_cache import RegionCache
from durable.authority.policies.orders import take_order
from durable.authority.policies.regions import leave_region
from durable.authority.queue.decisions import DecisionLog, read_decisions
from durable.authority.reads.claims import read_claims
from durable.authority.sides import Regional
from durable.model.ids import TenantId, WorkloadName
from durable.model.placement.intents import AnyIntent, Bind, Granted, Refused, Reserve, Start
from durable.model.placement.records import Decision
from durable.model.policy.rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyPhase,
    RolledBack,
)
from durable.model.states import PolicyState
from durable.plan.shadow import Shadow
from durable.scheduling.policies import first_policy
from durable.scheduling.request import Proposal
from durable.signals.names import POLICY_CONTROLLER
from tests.workflows.plane import EAST, Plane, manifest, until
from tests.workflows.replays import replayer
from tests.workflows.test_policy import WHO, came_to, in_force, policy, publish, ready
from tests.workflows.test_replay import SAVES, save

REPLICAS = 2
Commit = Callable[[Regional, Sequence[AnyIntent]], Awaitable[list[Granted | Refused]]]


class RolledBackInside:
    """Rolls revision 2 back inside the first commit of one kind for one workload."""

    def __init__(self, plane: Plane, name: str, kind: type[AnyIntent], *, before: bool) -> None:
        self._plane, self._name, self._kind, self._before = plane, name, kind, before
        self.report: RolledBack | None = None
        self.seen: Regional | None = None

    def around(self, commit: Commit) -> Commit:
        async def committed(
            regional: Regional, intents: Sequence[AnyIntent]
        ) -> list[Granted | Refused]:
            self.seen = regional
            is_it = any(isinstance(one, self._kind) and one.workload == self._name
                        for one in intents)  # fmt: skip
            if not is_it or self.report is not None:
                return await commit(regional, intents)
            if self._before:
                await self._roll_back()
                return await commit(regional, intents)
            outcomes = await commit(regional, intents)
            await self._roll_back()
            return outcomes

        return committed

    async def _roll_back(self) -> None:
        order = PolicyOrder(
            revision=2,
            kind=PolicyOrderKind.ROLLBACK,
            actor=POLICY_CONTROLLER,
            reason="a race",
            request=f"race/{self._name}",
        )
        databases = self._plane.databases
        back = (await take_order(databases, order, asked=None, default_canary=EAST)).target
        self.report = (await leave_region(databases, EAST, back)).report


@pytest.mark.parametrize(
    ("name", "kind", "before", "decided_again", "goes_on"),
    [
        # Decided, and nothing sent yet: the commit refuses every reservation.
        ("before-reserve", Reserve, True, 0, 0),
        ("after-reserve", Reserve, False, REPLICAS, 0),
        ("before-bind", Bind, True, REPLICAS, 0),
        ("after-bind", Bind, False, 0, REPLICAS),
        ("before-start", Start, True, 0, REPLICAS),
        ("after-start", Start, False, 0, REPLICAS),
    ],
)
async def test_a_rollback_at_this_step_is_followed_through(
    plane: Plane,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: type[AnyIntent],
    before: bool,
    decided_again: int,
    goes_on: int,
) -> None:
    race = RolledBackInside(plane, name, kind, before=before)
    monkeypatch.setattr(Regional, "commit", race.around(Regional.commit))
    await ready(plane)
    await plane.durable.apply(manifest("warm", replicas=1))
    await plane.durable.wait("risk", "warm")
    await publish(plane, reservation_lease_seconds=77)
    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyPhase.EVERYWHERE)

    async def decides_under_it() -> bool:
        assert race.seen is not None
        return race.seen.cache.policy()[0] == 2

    await until(decides_under_it, "the region decides under revision 2")
    await plane.durable.apply(manifest(name, replicas=REPLICAS), request_id="apply")
    await plane.durable.wait("risk", name)

    assert race.report is not None
    assert [(one.decided_again, one.goes_on) for one in race.report.shares] == (
        [(decided_again, goes_on)] if decided_again or goes_on else []
    )
    claims = [one for one in await read_claims(plane.databases, EAST) if one.workload == name]
    assert {one.policy_revision for one in claims} == {2 if goes_on else 1}
    decided_under = {2} if goes_on else {1, 2}
    assert await no_decision_mixes_revisions(plane, name) == decided_under
    await plane.no_invariant_is_broken()

    placement = plane.handle(name)
    await replayer().replay_workflow(await placement.fetch_history())
    if SAVES:
        await save(plane, placement.id)


# Of revision 1 and 2, what a decision shows of the policy that it was made under.
POLICIES = {1: first_policy(), 2: policy(reservation_lease_seconds=77)}


async def no_decision_mixes_revisions(plane: Plane, *names: str) -> set[int]:
    """Each claim has the revision of its decision, and each decision was made by one throughout.

    Answers the revisions that were met.
    """
    of_attempt: dict[tuple[str, int, int], int] = {}
    for name in names:
        of = (TenantId("risk"), WorkloadName(name))
        for decision in await read_decisions(plane.databases, EAST, *of, last=1_000):
            of_attempt[name, decision.generation, decision.attempt] = decision.policy_revision
            used = POLICIES[decision.policy_revision]
            assert decision.evidence["lease_seconds"] == used.reservation_lease_seconds
            for candidate in Proposal.read(decision.evidence["proposal"]).evidence.candidates:
                assert set(candidate.scores) == set(used.weights)
    claims = await read_claims(plane.databases, EAST, and_ended=True)
    mine = [one for one in claims if one.workload in names]
    assert mine, "something was placed"
    for one in mine:
        decided_under = of_attempt[str(one.workload), one.generation, one.attempt]
        assert one.policy_revision == decided_under, one
        lease_seconds = (one.expires_at - one.reserved_at).total_seconds()
        assert lease_seconds == POLICIES[decided_under].reservation_lease_seconds, one
    # Decided again under its own revision, each gives the same.
    again = await Shadow(plane.databases, POLICIES[1]).compare(EAST)
    assert again.unrepeatable == 0
    return set(of_attempt.values())


Record = Callable[[DecisionLog, Decision], Awaitable[Decision]]


class ChangedAfterDecisions:
    """Has another revision in force, and the cache know it, between a decision and its commit.

    Revision 2 is promoted there once, and once rolled back; whatever was decided meanwhile comes
    late.
    """

    def __init__(self, plane: Plane) -> None:
        self._plane, self._turn = plane, asyncio.Lock()
        self._cache: RegionCache | None = None
        self.decided: list[int] = []

    def around(self, record: Record) -> Record:
        async def recorded(log: DecisionLog, decision: Decision) -> Decision:
            async with self._turn:
                self.decided.append(decision.policy_revision)
                await self._change_policy()
            return await record(log, decision)

        return recorded

    def seeing(self, policy_of: Callable[[RegionCache], Any]) -> Callable[[RegionCache], Any]:
        def seen(cache: RegionCache) -> Any:
            self._cache = cache
            return policy_of(cache)

        return seen

    async def _change_policy(self) -> None:
        policies, decided = self._plane.durable.policies, self.decided
        if decided == [1, 1]:
            await policies.promote(2, request_id="up", **WHO)
            await came_to(self._plane, PolicyPhase.EVERYWHERE)
            await self._is_known(2)
        elif decided[-1] == 2 and decided.count(2) == 2:
            await policies.roll_back(2, request_id="down", **WHO)
            await came_to(self._plane, PolicyPhase.ROLLED_BACK)
            await self._is_known(1)

    async def _is_known(self, revision: int) -> None:
        async def is_known() -> bool:
            assert self._cache is not None
            return self._cache.policy()[0] == revision

        await until(is_known, f"the cache knows that revision {revision} is in force")


async def test_a_promotion_and_a_rollback_amid_many_placements_mix_no_revisions(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = ChangedAfterDecisions(plane)
    monkeypatch.setattr(DecisionLog, "submit", race.around(DecisionLog.submit))
    monkeypatch.setattr(RegionCache, "policy", race.seeing(RegionCache.policy))
    await ready(plane)
    await publish(plane, reservation_lease_seconds=77)
    names = [f"many-{number}" for number in range(5)]
    await asyncio.gather(*(plane.durable.apply(manifest(name, replicas=4)) for name in names))
    for name in names:
        await plane.durable.wait("risk", name)
    assert {1, 2} == await no_decision_mixes_revisions(plane, *names)
    assert (await in_force(plane)) == {1: PolicyState.ACTIVE}
    await plane.no_invariant_is_broken()
