"""What is kept for recovery is opened for one loss, and closed at its end whoever noted it."""

from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import text

from durable.activities.recovery_budgets import RecoveryBudgets
from durable.activities.recovery_executor import RecoveryExecutor
from durable.authority.fleet.regions import add_region
from durable.authority.quota.budgets import open_budget, read_budget, set_budget
from durable.authority.quota.quotas import set_quota
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.moves import list_affected
from durable.authority.recovery.recoveries import reach_phase, recovery_of_incident, take_order
from durable.model.ids import BudgetId, IncidentId, RegionId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import (
    Recovery,
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
    RecoveryProgress,
)
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from durable.signals.payloads import Payload
from durable.signals.sending import SignalSender
from durable.stack.postgres.server import EmbeddedPostgres
from tests.agent.waiting import eventually
from tests.authority.overrides.asking import ended, give_keys, in_force
from tests.authority.recovery.rounds import advance
from tests.authority.world import (
    API,
    BILLING,
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    seconds,
)
from tests.frozen import frozen

KEPT, APPROVED = BudgetId("headroom"), BudgetId("override/more")
FIRST, SECOND = RecoveryKey(region=EAST, epoch=2), RecoveryKey(region=EAST, epoch=3)
SOUTH = RegionId("south")
LATER = RecoveryKey(region=SOUTH, epoch=2)


class Unheard(SignalSender):
    """Nobody listens in these worlds."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))

    async def send_all(self, signals: Iterable[tuple[str, str, Payload]]) -> list[bool]:
        return [True for _ in signals]


async def lose(world: World, key: RecoveryKey = FIRST) -> Recovery:
    order = OperatorMessage.unsigned(
        str(key), RecoveryOrderKind.CONFIRM, actor=TEST, reason="a test", request_id=str(key)
    )
    confirmed = (await take_order(world.databases, order, by_policy=True)).target
    await fence(
        world.databases, key.region, expected_epoch=key.epoch - 1, actor=TEST, reason="a test"
    )
    return await reach(world, confirmed, RecoveryPhase.HOLDING)


async def reach(world: World, recovery: Recovery, phase: RecoveryPhase) -> Recovery:
    return await reach_phase(world.databases, recovery, phase, actor=TEST, reason="a test")


async def keep(world: World, budget: BudgetId = KEPT, until: float = 600) -> None:
    await set_budget(
        world.databases, WEST, budget, Resources.of(1000), expires_at=seconds(until), actor=TEST
    )


async def have_made_by_override(world: World, budget: BudgetId) -> None:
    """As if; an override's own budget is open for its incident from the beginning."""
    async with world.databases.at_region(WEST, "durable_recovery").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        statement = text("UPDATE regional.recovery_budgets SET override = 'more' WHERE budget = :b")
        await connection.execute(statement, {"b": budget})


async def open_for(world: World, incident: IncidentId, budget: BudgetId = KEPT) -> None:
    await open_budget(world.databases, WEST, budget, incident=incident, actor=TEST)


async def incident_of(world: World, budget: BudgetId = KEPT) -> IncidentId | None:
    found = await read_budget(world.databases, WEST, budget)
    assert found is not None
    return found.incident


async def test_what_was_opened_is_closed_though_nobody_noted_it_and_it_has_expired(
    two_regions: World,
) -> None:
    recovery = await lose(two_regions)
    # By a worker that died before it could say so; the hour of it has passed since.
    await keep(two_regions)
    await open_for(two_regions, FIRST.incident)
    await keep(two_regions, until=-1e9)
    budgets = RecoveryBudgets(two_regions.databases)
    assert recovery.draws == ()
    assert await budgets.find_open(recovery) == ["Budget headroom of us-west is still open."]
    await budgets.close(recovery)
    assert await incident_of(two_regions) is None
    assert await budgets.find_open(recovery) == []


async def test_what_a_recovery_that_has_ended_left_open_is_drawn_on_by_the_next(
    two_regions: World,
) -> None:
    await keep(two_regions)
    databases, budgets = two_regions.databases, RecoveryBudgets(two_regions.databases)
    first = await budgets.draw(await lose(two_regions))
    await reopen(databases, EAST, expected_epoch=2, actor=TEST, reason="it is back")
    second = await budgets.draw(await lose(two_regions, SECOND))
    assert ["is open for incident us-east-2" in one.refused for one in second.draws] == [True]
    await reach(two_regions, first, RecoveryPhase.SUPERSEDED)
    second = await budgets.draw(second)
    assert [one.refused for one in second.draws] == [""]
    assert await incident_of(two_regions) == SECOND.incident


async def test_critical_work_of_a_later_loss_gets_the_budget_of_one_that_holds(
    neighbours: World,
) -> None:
    """With nothing critical on either side it stays where it is, and it does not go to and fro."""
    world = neighbours
    await keep(world)
    databases, budgets = world.databases, RecoveryBudgets(world.databases)
    await admit(world, "batch", 10, EAST)
    first = await budgets.draw(await lose(world))
    await list_affected(databases, FIRST)
    await add_region(databases, SOUTH, TEST)
    await admit(world, "usual", 100, SOUTH)
    later = await lose(world, LATER)
    await list_affected(databases, LATER)
    later = await budgets.draw(later)
    assert ["is open for incident us-east-2" in one.refused for one in later.draws] == [True]
    assert await incident_of(world) == FIRST.incident
    await admit(world, "critical", 900, SOUTH)
    await list_affected(databases, LATER)
    later = await budgets.draw(later)
    assert [one.refused for one in later.draws] == [""]
    assert await incident_of(world) == LATER.incident
    await budgets.draw(first)
    assert await incident_of(world) == LATER.incident
    await budgets.close(first)
    assert await incident_of(world) == LATER.incident


async def admit(world: World, name: str, priority: int, region: RegionId) -> None:
    spec = WorkloadSpec(replicas=1, resources=Resources.of(100, 128), priority=priority)
    asked = WorkloadManifest(tenant=RISK, name=WorkloadName(name), spec=spec)
    await admit_workload(
        world.databases, asked, request=name, actor=TEST, divide=lambda _: {region: (0,)}
    )


async def test_what_was_approved_for_one_incident_is_left_alone_by_every_other(
    two_regions: World,
) -> None:
    await keep(two_regions, APPROVED)
    await have_made_by_override(two_regions, APPROVED)
    budgets = RecoveryBudgets(two_regions.databases)
    recovery = await budgets.draw(await lose(two_regions))
    assert recovery.draws == ()
    assert await incident_of(two_regions, APPROVED) is None
    await open_for(two_regions, FIRST.incident, APPROVED)
    [drawn] = (await budgets.draw(recovery)).draws
    assert drawn.budget == APPROVED
    await budgets.close(recovery)
    assert await incident_of(two_regions, APPROVED) == FIRST.incident, "its override ends it"
    assert await budgets.find_open(recovery) == []


async def test_an_incident_tells_its_recovery(two_regions: World) -> None:
    await lose(two_regions)
    found = await recovery_of_incident(two_regions.databases, FIRST.incident)
    assert found is not None
    assert found.key == FIRST
    for other in (SECOND.incident, IncidentId("us-east-02"), IncidentId("fire")):
        assert await recovery_of_incident(two_regions.databases, other) is None


async def test_what_is_kept_after_everything_was_tried_is_drawn_on_while_something_waits(
    two_regions: World,
) -> None:
    spec = WorkloadSpec(replicas=1, resources=Resources.of(100, 128))
    asked = WorkloadManifest(tenant=RISK, name=API, spec=spec)
    await admit_workload(
        two_regions.databases, asked, request="r", actor=TEST, divide=lambda _: {EAST: (0,)}
    )
    recovery = await lose(two_regions)
    await list_affected(two_regions.databases, FIRST)
    await keep(two_regions)
    await advance(RecoveryExecutor(two_regions.databases, Unheard()), recovery.key)
    assert await incident_of(two_regions) == FIRST.incident


async def test_a_recovery_leaves_behind_only_overrides_that_were_for_it(two_regions: World) -> None:
    databases, budgets = two_regions.databases, RecoveryBudgets(two_regions.databases)
    await give_keys(databases)
    spec = WorkloadSpec(replicas=1, resources=Resources.of(100, 128))
    asked = WorkloadManifest(tenant=RISK, name=API, spec=spec)
    await admit_workload(databases, asked, request="r", actor=TEST, divide=lambda _: {EAST: (0,)})
    west, quota, cpu = {"region": str(WEST)}, "emergency-quota", {"amount": {"cpu": 1}}
    one = IncidentId("another-1")

    async def give(name: str, kind: str, scope: dict[str, str], **effect: Any) -> None:
        await in_force(databases, WEST, kind, scope, name=name, effect={**cpu, **effect})

    await give("before", quota, {**west, "tenant": "risk"})
    recovery = await lose(two_regions)
    await list_affected(databases, FIRST)
    await set_quota(databases, BILLING, hard=Resources.of(1000), actor=TEST)
    await give("unrelated", quota, {**west, "tenant": "billing"})
    await give("elsewhere", "recovery-budget", west, incident=one)
    assert await budgets.find_leftovers(recovery) == []
    await give("for-risk", quota, {**west, "tenant": "risk"})
    await give("kept", "recovery-budget", west, incident=FIRST.incident)
    assert await budgets.find_leftovers(recovery) == [
        f"Override {name} ({kind}) is still in force; revoke it if it was for this loss."
        for name, kind in (("for-risk", quota), ("kept", "recovery-budget"))
    ]
    for number, name in enumerate(("for-risk", "kept")):
        await ended(databases, WEST, name, request_id=f"end-{number}")
    assert await budgets.find_leftovers(recovery) == []


async def test_a_recovery_does_not_end_while_a_region_that_was_drawn_on_is_silent(
    apart: World, other_postgres: EmbeddedPostgres
) -> None:
    await keep(apart)
    recovery = await RecoveryBudgets(apart.databases).draw(await lose(apart))
    await reach(apart, recovery, RecoveryPhase.SETTLING)
    phases = RecoveryExecutor(apart.databases, Unheard())

    async def look() -> RecoveryProgress:
        progress = await advance(phases, FIRST)
        assert progress is not None
        return progress

    with frozen(other_postgres):
        silent = await look()
    assert silent.recovery.phase is RecoveryPhase.SETTLING
    assert "The budgets of us-west could not be checked" in silent.waits_for

    async def has_ended() -> bool:
        return (await look()).recovery.phase is RecoveryPhase.SETTLED

    await eventually("it has ended", has_ended)
    assert await incident_of(apart) is None
