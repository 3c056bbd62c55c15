"""Could what got better help this request? If not, it is not woken."""

from dataclasses import replace
from typing import Any

import pytest

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.queue.relief import QueuedWork, Relief, choose, could_help
from durable.scheduling.snapshot.region import NodeFacts, Snapshot
from tests.scheduling.world import FULL, NOW, PLENTY, TENANT, Region, node, region, used

BEFORE, AFTER = 7, 9
Code = PendingCode


def observed(*worlds: Region, policies: tuple[int, ...] = (1, 1)) -> Relief:
    """What somebody knows who saw one region and then the other."""
    relief, snapshot = Relief(), Snapshot.empty("us-east")
    for version, policy, world in zip((BEFORE, AFTER), policies, worlds, strict=False):
        world.settle(snapshot, world.nodes)
        snapshot.version = version
        relief.observe(snapshot, policy)
    return relief


def waiting(code: PendingCode = Code.CAPACITY, cpu: int = 1, **changes: Any) -> QueuedWork:
    """One slot of 1 cpu and 1Gi, decided when the first region was seen."""
    values: dict[str, Any] = {"tenant": TENANT, "slots": 1, "decided_version": BEFORE}
    return QueuedWork(code=code, requested=used(cpu, memory=1), **{**values, **changes})


FULL_NODE = region(node(used=FULL))
HALF_FREE = region(node(used=used(cpu=4, memory=16)))


def lapsed(facts: NodeFacts) -> NodeFacts:
    return replace(facts, lease_expires_at=NOW - 1)


@pytest.mark.parametrize(
    ("before", "after", "code", "cpu", "helps"),
    [
        # room on a node
        (FULL_NODE, HALF_FREE, Code.CAPACITY, 4, True),
        (FULL_NODE, HALF_FREE, Code.CAPACITY, 5, False),
        (HALF_FREE, FULL_NODE, Code.CAPACITY, 1, False),
        (HALF_FREE, HALF_FREE, Code.CAPACITY, 1, False),
        (FULL_NODE, HALF_FREE, Code.SPREAD, 1, True),
        (FULL_NODE, HALF_FREE, Code.CONFLICTS, 1, True),
        (FULL_NODE, HALF_FREE, Code.NEVER_FITS, 1, False),
        (FULL_NODE, HALF_FREE, Code.REQUIREMENTS, 1, False),
        (FULL_NODE, HALF_FREE, Code.TAINTED, 1, False),
        (FULL_NODE, HALF_FREE, Code.NODES_UNAVAILABLE, 1, False),
        (FULL_NODE, HALF_FREE, Code.GRANT, 1, False),
        (FULL_NODE, HALF_FREE, Code.HELD, 1, False),
        # a node that came, came back or changed
        (region(), region(node()), Code.NODES_UNAVAILABLE, 8, True),
        (region(), region(node()), Code.CAPACITY, 8, True),
        (region(), region(node()), Code.NEVER_FITS, 9, False),
        (FULL_NODE, region(node(used=FULL, cpu=16)), Code.NEVER_FITS, 16, True),
        (region(node(ready=False)), region(node()), Code.NODES_UNAVAILABLE, 1, True),
        (region(node(cordoned=True)), region(node()), Code.NODES_UNAVAILABLE, 1, True),
        (region(node()), region(node(cordoned=True)), Code.NODES_UNAVAILABLE, 1, False),
        (region(node()), region(node(labels={"disk": "ssd"})), Code.REQUIREMENTS, 1, True),
        (region(lapsed(node())), region(node()), Code.NODES_UNAVAILABLE, 1, True),
        (region(node()), region(lapsed(node())), Code.NODES_UNAVAILABLE, 1, False),
        # grant and headroom
        (region(grant=used(2)), region(grant=used(4, 4)), Code.GRANT, 4, True),
        (region(grant=used(2)), region(grant=used(4, 4)), Code.GRANT, 5, False),
        (region(grant=used(4, 4)), region(grant=used(4, 4)), Code.GRANT, 1, False),
        (region(grant=None), region(grant=used(1)), Code.NO_GRANT, 8, True),
        (region(room=used(1)), region(room=used(2, 2)), Code.HEADROOM, 2, True),
        (region(room=used(1)), region(room=used(2, 2)), Code.HEADROOM, 3, False),
        # the region as a whole
        (region(is_open=False), region(), Code.REGION_FENCED, 1, True),
        (region(is_open=False), region(is_open=False), Code.REGION_FENCED, 1, False),
        (region(), region(), Code.REGION_LEASE_LAPSED, 1, True),
        (region(is_open=False), region(), Code.AUTHORITY_UNREACHABLE, 1, False),
    ],
)
def test_a_request_is_helped_by_what_it_waits_for_alone(
    before: Region, after: Region, code: PendingCode, cpu: int, helps: bool
) -> None:
    assert could_help(observed(before, after), waiting(code, cpu)) is helps


def test_another_policy_may_help_anybody() -> None:
    relief = observed(FULL_NODE, FULL_NODE, policies=(1, 2))
    assert could_help(relief, waiting(Code.TAINTED))
    assert could_help(relief, waiting(Code.HELD)), "the rules may have changed for it"


def test_the_grant_of_another_tenant_helps_nobody_else() -> None:
    relief = observed(region(grant=used(1)), region(grant=PLENTY))
    assert could_help(relief, waiting(Code.GRANT))
    assert not could_help(relief, waiting(Code.GRANT, tenant="billing"))


def test_who_has_seen_it_already_is_not_helped_by_it_again() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    assert not could_help(relief, waiting(decided_version=AFTER))


def test_a_lease_has_no_version_so_who_decided_meanwhile_may_not_have_seen_it() -> None:
    relief = observed(region(lapsed(node())), region(node()))
    assert could_help(relief, waiting(Code.NODES_UNAVAILABLE, decided_version=AFTER))


def test_what_failed_waits_for_its_time_not_for_room() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    assert could_help(relief, waiting(Code.CRASHED))
    assert not could_help(relief, waiting(Code.CRASHED, backs_off=True))


@pytest.mark.parametrize(("together", "helps"), [(4, True), (5, False)])
def test_a_gang_is_helped_by_room_for_all_of_it(together: int, helps: bool) -> None:
    gang = waiting(Code.GANG, together=together, slots=together, because=Code.CAPACITY)
    assert could_help(observed(FULL_NODE, HALF_FREE), gang) is helps


def test_a_gang_waits_for_what_its_replicas_wait_for() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    assert not could_help(relief, waiting(Code.GANG, because=Code.GRANT))
    assert could_help(relief, waiting(Code.GANG, because=None))


def woken(relief: Relief, *queue: QueuedWork) -> list[int]:
    return choose(relief, queue)


def test_no_more_are_woken_than_what_was_freed_can_take() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    assert woken(relief, *(waiting(cpu=2) for _ in range(100))) == [0, 1]
    assert woken(relief, waiting(cpu=1, slots=50), waiting(cpu=1)) == [0]
    assert woken(relief, waiting(cpu=3), waiting(cpu=2), waiting(cpu=1)) == [0, 2]


def test_those_that_cannot_be_helped_take_nothing_from_those_behind_them() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    hopeless = [waiting(cpu=8), waiting(Code.REQUIREMENTS), waiting(Code.GRANT)] * 50
    assert woken(relief, *hopeless, waiting(cpu=4)) == [150]


def test_grant_is_offered_once() -> None:
    relief = observed(region(grant=used(1)), region(grant=used(4, 4)))
    assert woken(relief, *(waiting(Code.GRANT, cpu=2) for _ in range(10))) == [0, 1]


def test_what_is_left_over_from_before_is_no_news() -> None:
    """A node with room that did not help before helps nobody when another is freed."""
    free, full = node("n1", used=used(cpu=4)), node("n2", used=FULL)
    freed = node("n2", used=used(cpu=6, memory=30))
    relief = observed(region(free, full), region(free, freed))
    assert woken(relief, waiting(cpu=4), waiting(cpu=2)) == [1]


def test_looking_takes_nothing() -> None:
    relief = observed(FULL_NODE, HALF_FREE)
    first = woken(relief, waiting(cpu=4))
    assert woken(relief, waiting(cpu=4)) == first == [0]


def test_rows_of_removed_nodes_offer_nothing() -> None:
    relief, snapshot = Relief(), Snapshot.empty("us-east")
    region(node()).settle(snapshot, [node()])
    relief.observe(snapshot, 1)
    snapshot.remove(["n1"])
    snapshot.version += 1
    relief.observe(snapshot, 1)
    assert not could_help(relief, waiting(decided_version=0))
