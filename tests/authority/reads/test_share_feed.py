"""Whoever follows the shares of a region sees every change, and nothing else."""

import asyncio
from typing import Any

import psycopg
import pytest

from durable.authority.fleet.observations import Observation, observe
from durable.authority.queue.requests import write_requests
from durable.authority.reads import share_feed, shares
from durable.authority.reads.share_feed import ShareFeed
from durable.authority.reads.shares import SHARES_PER_READ, ShareStatus, read_shares
from durable.model.ids import ActorId, NodeId, RegionId, WorkloadName
from durable.model.placement.intents import Granted, ReleaseCause
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Capacity, Resources
from durable.model.states import BindingState, ObservedState, RequestState
from tests.authority.queue.test_requests import NO_ROOM, request
from tests.authority.waiting import until_waiting
from tests.authority.world import API, BILLING, EAST, RISK, World, node, seconds

AGENT = ActorId("agent:n1")


async def report(world: World, token: int, state: ObservedState, sequence: int = 1) -> None:
    seen = Observation(
        token=token,
        node=NodeId("n1"),
        session=world.sessions["n1"],
        sequence=sequence,
        state=state,
        evidence="probe",
    )
    assert await observe(world.databases, EAST, [seen], observer=AGENT) == [None]


def feed_of(world: World) -> ShareFeed:
    return ShareFeed(world.databases, EAST)


async def following(world: World) -> ShareFeed:
    """A feed that has shares everything there is."""
    feed = feed_of(world)
    await feed.everything(now=world.now)
    return feed


async def heard(world: World, feed: ShareFeed) -> dict[int, BindingState | None]:
    """The states of the one share that changed, by slot."""
    (share,) = await feed.changed(now=world.now)
    return states(share)


def states(share: ShareStatus) -> dict[int, BindingState | None]:
    return {slot.slot: slot.state for slot in share.slots}


async def test_a_share_is_reported_with_every_slot_and_what_the_rest_waits_for(
    ready_world: World,
) -> None:
    token = await ready_world.running(0)
    await ready_world.granted(ready_world.reserve(1))
    await report(ready_world, token, ObservedState.SERVING)
    await write_requests(ready_world.databases, EAST, [request(waiting=1)])
    (share,) = await read_shares(ready_world.databases, EAST, now=ready_world.now)
    assert (share.tenant, share.workload, share.generation) == (RISK, API, 1)
    (slot,) = share.slots
    assert (slot.slot, slot.token, slot.attempt, slot.node) == (0, token, 1, "n1")
    assert (slot.state, slot.evidence) == (BindingState.SERVING, "probe")
    assert not slot.stop_requested
    assert share.request is not None
    assert share.request.state is RequestState.PENDING
    assert (share.request.pending, share.request.waiting) == (NO_ROOM, 1)


async def test_a_replica_of_a_job_that_is_done_is_news_to_its_workload(ready_world: World) -> None:
    placed = {"state": RequestState.PLACED, "pending": None, "waiting": 0}
    await write_requests(ready_world.databases, EAST, [request(**placed)])
    feed = await following(ready_world)
    await write_requests(ready_world.databases, EAST, [request(**placed, completed=(1,))])
    (share,) = await feed.changed(now=ready_world.now)
    assert (share.report().completed, share.report().completed_slots) == (1, {1})


async def test_a_quiet_look_reads_nothing(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await ready_world.running(0)
    await report(ready_world, token, ObservedState.RUNNING)
    feed = await following(ready_world)
    # Whoever reads a share fails now.
    monkeypatch.setattr(shares, "_SLOTS", None)
    assert await feed.changed(now=ready_world.now) == []
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as slow:
        await slow.execute("UPDATE regional.observations SET evidence = 'open'")
        assert await feed.changed(now=ready_world.now) == []


async def test_what_was_read_while_another_transaction_was_open_is_not_read_again(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await ready_world.running(slot) for slot in range(2)]
    await report(ready_world, first, ObservedState.STARTING)
    feed = await following(ready_world)
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as slow:
        await slow.execute("UPDATE regional.observations SET evidence = 'open'")
        await report(ready_world, second, ObservedState.RUNNING)
        assert (await heard(ready_world, feed))[1] is BindingState.RUNNING
        with monkeypatch.context() as patched:
            patched.setattr(shares, "_SLOTS", None)
            assert await feed.changed(now=ready_world.now) == []


@pytest.mark.parametrize("swept", [False, True])
async def test_only_shares_that_were_written_since_are_read(
    ready_world: World, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    rows = [request(workload=WorkloadName(f"w{at}")) for at in range(3)]
    feed = await following(ready_world)
    await write_requests(ready_world.databases, EAST, rows)
    changed = await (feed.everything if swept else feed.changed)(now=ready_world.now)
    assert len(changed) == 3
    asked: list[str] = []

    async def read(databases: Any, region: Any, keys: Any, *, now: Any) -> list[ShareStatus]:
        asked.extend(workload for _, workload, _ in keys)
        return await shares.read_those_shares(databases, region, keys, now=now)

    monkeypatch.setattr(share_feed, "read_those_shares", read)
    for waiting in (1, 0):
        await write_requests(
            ready_world.databases, EAST, [rows[1].model_copy(update={"waiting": waiting})]
        )
        (share,) = await feed.changed(now=ready_world.now)
        assert share.report().waiting == waiting
    assert await feed.changed(now=ready_world.now) == []
    assert asked == ["w1", "w1"]


async def test_the_first_word_is_everything(ready_world: World) -> None:
    await ready_world.running(0)
    (share,) = await feed_of(ready_world).changed(now=ready_world.now)
    assert states(share) == {0: BindingState.STARTING}


async def test_every_step_of_a_binding_is_reported(ready_world: World) -> None:
    feed = await following(ready_world)
    token = (await ready_world.granted(ready_world.reserve(0))).token
    assert await feed.changed(now=ready_world.now) == [], "nothing is bound yet"
    await ready_world.granted(ready_world.bind(token))
    assert await heard(ready_world, feed) == {0: BindingState.BOUND}
    await ready_world.granted(ready_world.start(token))
    assert await heard(ready_world, feed) == {0: BindingState.STARTING}
    for sequence, seen in enumerate((ObservedState.READY, ObservedState.FAILED), start=1):
        await report(ready_world, token, seen, sequence)
        assert await heard(ready_world, feed) == {0: BindingState(seen)}
    await ready_world.granted(ready_world.evict(token))
    (share,) = await feed.changed(now=ready_world.now)
    assert share.slots[0].stop_requested
    await ready_world.granted(ready_world.release(token, cause=ReleaseCause.STOPPED))
    (share,) = await feed.changed(now=ready_world.now)
    assert share.slots == ()
    assert await feed.changed(now=ready_world.now) == []


async def test_a_change_of_one_slot_is_reported_with_the_whole_share(ready_world: World) -> None:
    tokens = [await ready_world.running(slot) for slot in range(3)]
    await ready_world.running(3, generation=2)
    feed = await following(ready_world)
    await report(ready_world, tokens[1], ObservedState.SERVING)
    (share,) = await feed.changed(now=ready_world.now)
    assert share.generation == 1
    assert states(share) == {
        0: BindingState.STARTING, 1: BindingState.SERVING, 2: BindingState.STARTING,
    }  # fmt: skip


async def test_a_request_is_reported_when_it_changes(ready_world: World) -> None:
    feed = await following(ready_world)
    await write_requests(ready_world.databases, EAST, [request()])
    (share,) = await feed.changed(now=ready_world.now)
    assert share.request is not None
    assert (share.request.waiting, share.slots) == (2, ())
    await write_requests(ready_world.databases, EAST, [request(attempts=1)])
    assert await feed.changed(now=ready_world.now) == [], "nothing that is shares has changed"
    await write_requests(ready_world.databases, EAST, [request(state=RequestState.WITHDRAWN)])
    (share,) = await feed.changed(now=ready_world.now)
    assert share.request is not None
    assert share.request.state is RequestState.WITHDRAWN


async def test_a_transaction_that_commits_late_is_not_missed(ready_world: World) -> None:
    """It began before another that the feed has read, and commits after it."""
    first, second = [await ready_world.running(slot) for slot in range(2)]
    await report(ready_world, first, ObservedState.STARTING)
    await write_requests(ready_world.databases, EAST, [request()])
    feed = await following(ready_world)
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as slow:
        await slow.execute(
            "UPDATE regional.observations SET state = 'serving', sequence = 9 WHERE token = %s",
            [first],
        )
        await slow.execute("UPDATE regional.requests SET waiting = 1")
        await report(ready_world, second, ObservedState.RUNNING)
        assert (await heard(ready_world, feed))[1] is BindingState.RUNNING
        await slow.commit()
    (share,) = await feed.changed(now=ready_world.now)
    assert states(share) == {0: BindingState.SERVING, 1: BindingState.RUNNING}
    assert share.report().waiting == 1
    assert await feed.changed(now=ready_world.now) == []


async def test_a_transaction_that_is_rolled_back_is_no_news(ready_world: World) -> None:
    token = await ready_world.running(0)
    await report(ready_world, token, ObservedState.RUNNING)
    feed = await following(ready_world)
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as slow:
        await slow.execute("UPDATE regional.observations SET state = 'failed'")
        assert await feed.changed(now=ready_world.now) == []
        await slow.rollback()
    assert await feed.changed(now=ready_world.now) == []


async def test_no_writer_can_claim_another_transaction(ready_world: World) -> None:
    await write_requests(ready_world.databases, EAST, [request()])
    feed = await following(ready_world)
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as writer:
        await writer.execute("UPDATE regional.requests SET waiting = 1, written_in = '3'")
    (share,) = await feed.changed(now=ready_world.now)
    assert share.report().waiting == 1


async def test_a_reader_that_met_an_open_commit_hears_of_it_after(ready_world: World) -> None:
    feed = await following(ready_world)
    token = (await ready_world.granted(ready_world.reserve(0))).token
    async with await psycopg.AsyncConnection.connect(ready_world.databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions FOR UPDATE")
        binding = asyncio.create_task(ready_world.granted(ready_world.bind(token)))
        await until_waiting(gate)
        assert await feed.changed(now=ready_world.now) == []
        await gate.commit()
        await binding
    assert await heard(ready_world, feed) == {0: BindingState.BOUND}


async def test_a_lapsed_lease_is_found_by_the_sweep(ready_world: World) -> None:
    token = await ready_world.running(0)
    await report(ready_world, token, ObservedState.SERVING)
    feed = await following(ready_world)
    assert await feed.changed(now=ready_world.now) == []
    ready_world.now = seconds(600)
    assert await feed.changed(now=ready_world.now) == []
    (share,) = await feed.everything(now=ready_world.now)
    assert states(share) == {0: BindingState.UNKNOWN}
    assert share.slots[0].since == seconds(600)


async def test_what_ended_keeps_the_moment_of_its_end(ready_world: World) -> None:
    token = await ready_world.running(0)
    await report(ready_world, token, ObservedState.FAILED)
    (before,) = await read_shares(ready_world.databases, EAST, now=ready_world.now)
    (after,) = await read_shares(ready_world.databases, EAST, now=seconds(10_000))
    assert before.slots == after.slots


async def test_the_sweep_reports_once_more_what_is_gone(ready_world: World) -> None:
    token = await ready_world.running(0)
    feed = await following(ready_world)
    await report(ready_world, token, ObservedState.STOPPED)
    await ready_world.granted(ready_world.release(token, cause=ReleaseCause.STOPPED))
    (share,) = await feed.everything(now=ready_world.now)
    assert (share.key, share.slots) == (("risk", "api", 1), ())
    assert await feed.everything(now=ready_world.now) == []


async def test_many_shares_are_read_in_parts(ready_world: World) -> None:
    count = SHARES_PER_READ + 5
    rows = [request(workload=WorkloadName(f"w{number:04}")) for number in range(count)]
    await write_requests(ready_world.databases, EAST, rows)
    shares = await feed_of(ready_world).everything(now=ready_world.now)
    assert [str(share.workload) for share in shares] == [f"w{number:04}" for number in range(count)]


async def test_shares_are_read_by_tenant_and_workload(ready_world: World) -> None:
    other = WorkloadName("other")
    rows = [request(), request(tenant=BILLING), request(workload=other)]
    await write_requests(ready_world.databases, EAST, rows)

    async def names(*which: object) -> list[str]:
        read = await read_shares(ready_world.databases, EAST, *which)  # pyright: ignore[reportArgumentType]
        return [f"{share.tenant}/{share.workload}" for share in read]

    assert await names() == ["billing/api", "risk/api", "risk/other"]
    assert await names(RISK) == ["risk/api", "risk/other"]
    assert await names(RISK, other) == ["risk/other"]


async def test_a_failed_read_loses_nothing(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = await following(ready_world)
    await ready_world.running(0)
    with monkeypatch.context() as broken:
        broken.setattr(shares, "_SLOTS", None)
        with pytest.raises(Exception):  # noqa: B017, PT011 - any failure will do
            await feed.changed(now=ready_world.now)
    assert await heard(ready_world, feed) == {0: BindingState.STARTING}


async def test_an_unknown_region_is_a_refusal(ready_world: World) -> None:
    feed = ShareFeed(ready_world.databases, RegionId("nowhere"))
    with pytest.raises(RefusedError) as no:
        await feed.changed()
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION


async def test_a_thousand_bindings_are_one_read(world: World) -> None:
    await world.with_region()
    await world.with_nodes(node(capacity=Capacity(cpu_millis=8_000_000, memory_mib=8_000_000)))
    await world.with_tenant(grant=Resources.of(8_000_000, 8_000_000))
    await world.with_slots(1000)
    feed = await following(world)
    small = Resources.of(10, 1)
    tokens: list[int] = []
    for first in range(0, 1000, 500):
        part = range(first, first + 500)
        reserved = await world.send(*(world.reserve(slot, resources=small) for slot in part))
        tokens += [outcome.token for outcome in reserved if isinstance(outcome, Granted)]
        await world.send(*(world.bind(tokens[slot], slot) for slot in part))
    assert len(await heard(world, feed)) == 1000
    reports = [
        Observation(token=token, node=NodeId("n1"), session=1, sequence=1,
                    state=ObservedState.SERVING, evidence="probe")
        for token in tokens
    ]  # fmt: skip
    await observe(world.databases, EAST, reports, observer=AGENT)
    assert set((await heard(world, feed)).values()) == {BindingState.SERVING}
    assert await feed.changed(now=world.now) == []
