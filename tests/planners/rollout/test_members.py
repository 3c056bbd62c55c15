"""What a mark does to a job and to a gang: single members move, and nothing is restarted for it."""

from typing import Any

import pytest

from durable.planners.rollout.observed import Goal, ObservedReplica, ShareName, fenceposts
from durable.planners.rollout.observed import restarts_together as restarts
from tests.planners.rollout.world import EAST, NEW, OLD, World, homes, serving
from tests.scheduling.world import spec

JOB: dict[str, Any] = {"kind": "job"}
GANG: dict[str, Any] = {"all_or_nothing": True}


@pytest.mark.parametrize(
    ("fields", "present", "together"),
    [
        (JOB, [NEW], False),
        (GANG, [NEW], False),
        ({"minimum": 2}, [NEW], False),
        (JOB, [OLD, NEW], True),
        (GANG, [OLD], True),
        ({"minimum": 2}, [OLD], True),
        ({}, [OLD], False),
        (GANG, [], False),
    ],
)
def test_only_another_generation_restarts_a_gang_or_a_job(
    fields: dict[str, Any], present: list[int], together: bool
) -> None:
    assert restarts(spec(replicas=4, **fields), NEW, present) is together


def test_a_job_has_nothing_added_and_nothing_to_keep() -> None:
    assert fenceposts(spec(replicas=4, **JOB)) == (0, 4, 4)


def goal(slots: dict[int, str], **fields: Any) -> Goal:
    return Goal(OLD, slots, stable=OLD, at_once=True, **fields)


def test_a_marked_replica_of_a_job_moves_alone() -> None:
    slots = homes(us_east=4)
    world = World.settled(OLD, slots)
    share = ShareName(OLD, EAST)
    # A job runs and never serves; slot 3 is done and has no claim.
    world.replicas = {slot: ObservedReplica(share, is_marked=slot == 1) for slot in (0, 1, 2)}
    wanted = goal(slots, **fenceposts(spec(replicas=4, **JOB))._asdict())

    assert world.plan(wanted).shares == {share: (0, 2, 3)}
    assert world.floors == {EAST: 0}
    world.replicas[1] = ObservedReplica(share, is_marked=True, is_stopping=True)
    assert world.plan(wanted).shares == {share: (0, 2, 3)}
    del world.replicas[1]
    assert world.plan(wanted).shares == {share: (0, 1, 2, 3)}


def test_a_marked_job_replica_comes_back_without_waiting_for_the_others() -> None:
    slots = homes(us_east=3)
    world = World.settled(OLD, slots)
    share = ShareName(OLD, EAST)
    world.replicas = {slot: ObservedReplica(share, is_marked=slot != 2) for slot in slots}
    wanted = goal(slots, **fenceposts(spec(replicas=3, **JOB))._asdict())
    assert world.plan(wanted).shares == {share: (2,)}
    del world.replicas[0]  # slot 1 takes longer to stop
    world.replicas[1] = ObservedReplica(share, is_marked=True, is_stopping=True)
    assert world.plan(wanted).shares == {share: (0, 2)}


def test_a_marked_member_of_a_gang_is_replaced_make_before_break() -> None:
    slots = homes(us_east=3)
    world = World.settled(OLD, slots)
    share = ShareName(OLD, EAST)
    world.replicas[1] = serving(OLD, EAST, is_marked=True)
    wanted = goal(slots, surge=1, unavailable=0, allowance=0)
    assert world.plan(wanted).shares == {share: (0, 1, 2, 3)}
    world.replicas[3] = serving(OLD, EAST)
    assert world.plan(wanted).shares == {share: (0, 2, 3)}
