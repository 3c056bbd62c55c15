"""What waits is woken by what it waits for, and costs the others little while it waits."""

from itertools import pairwise

from durable.authority.queue.decisions import read_decisions, record_decisions
from durable.model.fleet.manifest import Fleet
from durable.model.ids import TenantId, WorkloadName
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.records import Decision
from durable.model.work.phases import SlotPhase
from durable.scheduling.request import Evidence, Proposal
from tests.authority.world import seconds
from tests.model.pending import pending
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

RISK, API = TenantId("risk"), WorkloadName("api")


async def decisions(plane: Plane, name: str = "api") -> list[Decision]:
    return await read_decisions(plane.databases, EAST, RISK, WorkloadName(name), last=1_000)


async def waits(plane: Plane, name: str) -> bool:
    found = (await plane.placement(name)).pending
    return found is not None and found.code in (PendingCode.CAPACITY, PendingCode.HEADROOM)


async def wakeups(plane: Plane, name: str) -> int:
    """How often a placement was woken, by its history."""
    return len(
        [
            event
            async for event in plane.handle(name).fetch_history_events()
            if event.workflow_execution_signaled_event_attributes.signal_name == "wake"
        ]
    )


def one_node() -> Fleet:
    """A node of 4 cpu, and a tenant that may use more than it has."""
    plenty = {"cpu": 100, "memory": "100Gi"}
    tenant = {"id": "risk", "hard": plenty, "grants": {"east": plenty}}
    fleet = small_fleet(nodes=1, cpu=4).model_dump(mode="json")
    return Fleet.model_validate({**fleet, "tenants": [tenant]})


def cpus(count: int) -> dict[str, str]:
    return {"cpu": str(count), "memory": "256Mi"}


async def test_what_was_freed_wakes_those_whom_it_can_help_and_no_others(plane: Plane) -> None:
    await (await (await plane.load(one_node())).host()).work()
    for name in ("stays", "goes"):
        await plane.durable.apply(manifest(name, replicas=1, resources=cpus(2)))
        await plane.durable.wait("risk", name)
    hopeless = [f"large-{number}" for number in range(3)]
    for name in hopeless:
        await plane.durable.apply(manifest(name, replicas=1, resources=cpus(3), priority=900))
    await plane.durable.apply(manifest("fits", replicas=1, resources=cpus(2), priority=1))
    for name in (*hopeless, "fits"):
        await until(lambda name=name: waits(plane, name), f"{name} waits")

    await plane.durable.delete("risk", "goes")

    await plane.durable.wait("risk", "fits", within_seconds=180)
    assert [await wakeups(plane, name) for name in hopeless] == [0, 0, 0]
    await plane.no_invariant_is_broken()


async def test_a_decision_that_finds_the_same_again_is_counted(plane: Plane) -> None:
    await (await (await plane.load(one_node())).host()).work()
    await plane.durable.apply(manifest(replicas=2, resources=cpus(3)))
    await until(lambda: waits(plane, "api"), "the second finds no room")

    for number in range(3):
        await plane.durable.send(plane.handle().id, "retry_now", request_id=f"r{number}")

    async def counted() -> bool:
        return (await decisions(plane))[-1].repeats >= 3

    await until(counted, "each try is counted")
    now = await decisions(plane)
    assert all(a.findings is None or a.findings != b.findings for a, b in pairwise(now))
    assert (await plane.placement()).attempts == len(now)


async def test_a_placement_that_was_started_anew_goes_on_with_the_next_free_attempt(
    plane: Plane,
) -> None:
    await plane.load()
    evidence = Evidence(
        policy_revision=1, cache_version=1, cache_age_seconds=0.0, nodes=0, feasible=0
    )
    why = pending(PendingCode.CAPACITY, "There was no room.")
    nothing = Proposal(assignments=(), unplaced=(0, 1), pending=why, evidence=evidence)
    old = Decision(
        region=EAST,
        tenant=RISK,
        workload=API,
        generation=1,
        attempt=1,
        policy_revision=1,
        cache_version=1,
        evidence={"proposal": nothing.model_dump(mode="json"), "lease_seconds": 30},
        decided_at=seconds(0),
    )
    attempts = [old.model_copy(update={"attempt": number}) for number in range(1, 401)]
    await record_decisions(plane.databases, EAST, attempts)
    await (await plane.host()).work()

    await plane.durable.apply(manifest())

    assert (await plane.durable.wait("risk", "api")).serving == 2
    placement = await plane.placement()
    assert all(slot.attempt > 400 for slot in placement.slots)
    assert placement.attempts == max(one.attempt for one in await decisions(plane))
    assert {slot.phase for slot in placement.slots} == {SlotPhase.SERVING}
