"""A policy is rolled back at every step of a placement, in one order that is the same every time.

The rollback happens inside the commit of the step, just before it or just after it. The histories
of the placements are saved beside the others, and replay.
"""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from durable.authority.policies.orders import take_order
from durable.authority.policies.regions import leave_region
from durable.authority.queue.decisions import read_decisions
from durable.authority.reads.claims import read_reservations
from durable.authority.sides import Regional
from durable.model.ids import TenantId, WorkloadName
from durable.model.intents import AnyIntent, Bind, Granted, Refused, Reserve, Start
from durable.model.policy_rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyStage,
    RolledBack,
)
from durable.scheduling.request import Proposal
from durable.signals.names import POLICY_CONTROLLER
from tests.workflows.plane import EAST, Plane, manifest, until
from tests.workflows.replays import replayer
from tests.workflows.test_policy import WHO, came_to, publish, ready
from tests.workflows.test_replay import SAVES, save

REPLICAS = 2


class RolledBackInside:
    """Rolls revision 2 back inside the first commit of one kind for one workload."""

    def __init__(self, plane: Plane, name: str, kind: type[AnyIntent], *, before: bool) -> None:
        self._plane, self._name, self._kind, self._before = plane, name, kind, before
        self.report: RolledBack | None = None
        self.seen: Regional | None = None

    def around(
        self, commit: Callable[[Regional, Sequence[AnyIntent]], Awaitable[list[Granted | Refused]]]
    ) -> Callable[[Regional, Sequence[AnyIntent]], Awaitable[list[Granted | Refused]]]:
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
        back = await take_order(databases, order, asked=None, default_canary=EAST)
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
    await publish(plane)
    await plane.durable.policies.promote(2, request_id="up", **WHO)
    await came_to(plane, PolicyStage.EVERYWHERE)

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
    claims = [one for one in await read_reservations(plane.databases, EAST) if one.workload == name]
    assert {one.policy_revision for one in claims} == {2 if goes_on else 1}
    await no_decision_mixes_revisions(plane, name)
    await plane.no_invariant_is_broken()

    placement = plane.handle(name)
    await replayer().replay_workflow(await placement.fetch_history())
    if SAVES:
        await save(plane, placement.id)


async def no_decision_mixes_revisions(plane: Plane, name: str) -> None:
    """Each claim has the revision of its decision, and each decision one revision throughout."""
    of = (TenantId("risk"), WorkloadName(name))
    decisions = await read_decisions(plane.databases, EAST, *of)
    by_attempt = {one.attempt: one.policy_revision for one in decisions}
    for decision in decisions:
        proposal = Proposal.read(decision.evidence["proposal"])
        assert proposal.evidence.policy_revision == decision.policy_revision
    for claim in await read_reservations(plane.databases, EAST):
        if claim.workload == name:
            assert claim.policy_revision == by_attempt[claim.attempt]
