"""Orders of recoveries meet the region's fact, and a loss that comes again is a loss again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import text
from temporalio.client import Client

from durable.activities.recovery_executor import RecoveryExecutor
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.recovery.fence import fence
from durable.authority.recovery.recoveries import (
    begin_suspected,
    reach_phase,
    recovery_of_incident,
    take_order,
)
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.suspicions import clear_suspicion, record_suspicion
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.detection import (
    LossKind,
    LossVerdict,
    RecoveryPolicy,
    RegionSigns,
    Suspicion,
)
from durable.model.recovery.recoveries import (
    UNFENCED,
    Recovery,
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
)
from durable.model.refusal import RefusedError
from durable.signals.payloads import RequestId
from durable.signals.sending import SignalSender
from durable.temporal.recoveries import Recoveries
from durable.temporal.sender import MessageSender
from tests.authority.recovery.rounds import advance
from tests.authority.world import EAST, TEST, WEST, World

LOST = RecoveryKey(region=EAST, epoch=2)
K, S = RecoveryOrderKind, RecoveryPhase


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield await World(databases).with_two_regions()


def order(
    kind: RecoveryOrderKind, key: RecoveryKey = LOST, actor: ActorId = TEST
) -> OperatorMessage:
    return OperatorMessage.unsigned(
        str(key), kind, actor=actor, reason="a test", request_id=kind.value
    )


async def suspect(world: World, **changes: Any) -> datetime:
    """East is lost now, to whoever looks."""
    now = await read_time(world.databases)
    verdict = LossVerdict(
        region=EAST, kind=LossKind.REGION, sentence="silent", signs=RegionSigns(region=EAST)
    )
    lost = Suspicion(region=EAST, epoch=1, since=now, lost_at=now, verdict=verdict)
    lost = lost.model_copy(update=changes)
    assert await record_suspicion(world.databases, lost, TEST)
    return now


async def begin(world: World) -> Recovery:
    begun = await begin_suspected(world.databases, LOST, actor=TEST)
    assert begun is not None
    return begun


async def dismiss(world: World) -> None:
    await clear_suspicion(world.databases, EAST, TEST, "it is back")
    recovery = await begin(world)
    await reach_phase(world.databases, recovery, S.DISMISSED, actor=TEST, reason="it is back")


async def veto(world: World) -> None:
    await take_order(world.databases, order(K.VETO), by_policy=True)
    # Of the same suspicion: it stays vetoed.
    assert (await begin(world)).phase is S.VETOED
    await clear_suspicion(world.databases, EAST, TEST, "it is back")


async def test_a_veto_between_the_fence_and_its_note_is_refused(world: World) -> None:
    databases = world.databases
    await take_order(databases, order(K.CONFIRM), by_policy=True)
    await fence(databases, EAST, expected_epoch=1, actor=TEST, reason="a test")
    with pytest.raises(RefusedError, match="fenced already"):
        await take_order(databases, order(K.VETO), by_policy=True)
    found = await recovery_of_incident(databases, LOST.incident)
    assert found is not None
    assert found.phase is S.CONFIRMED


async def test_a_fenced_region_whose_loss_was_vetoed_is_declared_lost_at_the_same_epoch(
    world: World,
) -> None:
    databases = world.databases
    await take_order(databases, order(K.VETO), by_policy=True)
    await fence(databases, EAST, expected_epoch=1, actor=TEST, reason="a test")
    recoveries = Recoveries(MessageSender(cast(Client, None), databases, TEST))
    assert await recoveries.next_of(EAST) == LOST
    confirmed = (await take_order(databases, order(K.CONFIRM), by_policy=True)).target
    assert confirmed.phase is S.CONFIRMED


@pytest.mark.parametrize("end", [dismiss, veto])
async def test_a_loss_that_was_none_does_not_hide_the_next_one(
    world: World, end: Callable[[World], Awaitable[None]]
) -> None:
    await suspect(world)
    assert (await begin(world)).phase is S.SUSPECTED
    await end(world)
    assert (await begin(world)).has_ended
    lost_at = await suspect(world)
    again = await begin(world)
    assert (again.phase, again.lost_at, again.ended_at) == (S.SUSPECTED, lost_at, None)
    assert again.evidence == (await read_fact(world.databases, EAST)).evidence


async def test_a_loss_that_is_confirmed_after_a_veto_is_measured_from_there(world: World) -> None:
    vetoed = (await take_order(world.databases, order(K.VETO), by_policy=True)).target
    confirmed = (await take_order(world.databases, order(K.CONFIRM), by_policy=True)).target
    assert confirmed.lost_at > vetoed.changed_at


async def test_by_policy_every_loss_is_confirmed_once_and_never_after_a_veto(world: World) -> None:
    phases = RecoveryExecutor(world.databases, cast(SignalSender, None))
    confirm = phases._order  # pyright: ignore[reportPrivateUsage]
    await suspect(world)
    first = await begin(world)
    await veto(world)
    assert (await confirm(first, K.CONFIRM, "lost")).phase is S.VETOED
    await suspect(world)
    second = await begin(world)
    assert (await confirm(second, K.CONFIRM, "lost")).phase is S.CONFIRMED
    assert (await confirm(second, K.CONFIRM, "lost")).phase is S.CONFIRMED


async def test_a_loss_is_confirmed_by_policy_only_when_it_has_lasted(world: World) -> None:
    """Whoever had its workflow started: an early one waits for the grace, whatever was sent."""
    phases = RecoveryExecutor(world.databases, SignalSender(cast(Client, None)))
    now = await suspect(world)
    early = await advance(phases, LOST)
    assert early is not None
    assert early.recovery.phase is S.SUSPECTED
    # One host, of which nothing is known: the longer of the graces.
    assert early.look_in is not None
    grace = RecoveryPolicy().lone_host_grace_seconds
    assert grace - 60 < early.look_in.seconds <= grace
    long_ago = now - timedelta(hours=1)
    await suspect(world, since=long_ago, calm_since=now)
    calm = await advance(phases, LOST)
    assert calm is not None
    assert calm.recovery.phase is S.SUSPECTED
    assert (await read_fact(world.databases, EAST)).epoch == 1
    await suspect(world, since=long_ago)
    late = await advance(phases, LOST)
    assert late is not None
    assert late.recovery.phase not in UNFENCED
    assert (await read_fact(world.databases, EAST)).epoch == 2


async def test_a_request_id_is_of_one_actor_and_one_recovery(world: World) -> None:
    other = RecoveryKey(region=WEST, epoch=2)
    await take_order(world.databases, order(K.CONFIRM), by_policy=True)
    mine = order(K.CONFIRM, actor=ActorId("another"))
    with pytest.raises(RefusedError, match="send another request id"):
        await take_order(world.databases, mine, by_policy=True)
    taken = (await take_order(world.databases, order(K.CONFIRM, key=other), by_policy=True)).target
    assert taken.key == other


async def test_nobody_can_use_up_the_request_id_of_the_policy(world: World) -> None:
    phases = RecoveryExecutor(world.databases, cast(SignalSender, None))
    await suspect(world)
    suspected = await begin(world)
    await phases._order(suspected, K.CONFIRM, "lost")  # pyright: ignore[reportPrivateUsage]
    async with world.databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT request FROM global.operator_requests"))
        [used] = rows.scalars()
    with pytest.raises(ValidationError):
        TypeAdapter(RequestId).validate_python(used)


async def test_what_a_person_declares_lost_was_lost_at_its_last_sign_of_life(world: World) -> None:
    """Its lease has lapsed since; one whose lease lives is lost when that is said."""
    now = await read_time(world.databases)
    renewed_at = now - timedelta(seconds=165)
    async with world.databases.at_global("durable_region").begin() as connection:
        await connection.execute(
            text("""
                UPDATE global.regions
                   SET lease_number = 1, lease_seconds = 120, lease_expires_at = CASE region
                       WHEN 'us-east' THEN CAST(:at AS timestamptz) + interval '120 seconds'
                       ELSE clock_timestamp() + interval '120 seconds' END
            """),
            {"at": renewed_at},
        )
    lost = (await take_order(world.databases, order(K.CONFIRM), by_policy=True)).target
    assert lost.lost_at == renewed_at
    west = RecoveryKey(region=WEST, epoch=2)
    alive = (await take_order(world.databases, order(K.CONFIRM, west), by_policy=True)).target
    assert alive.lost_at >= now
