"""What a region could take: by its nodes, its room and the grant that can be brought there."""

from dataclasses import replace
from typing import Any

import pytest

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.resources import Amounts
from durable.model.work.workload import WorkloadManifest
from durable.scheduling.regions.room import RegionOffer, RegionRoom, RegionStanding, offers
from durable.scheduling.snapshot.region import EmergencyDraw
from tests.scheduling.world import FULL, PLENTY, TENANT, Region, node, region, spec

MUCH: Amounts = PLENTY
NOTHING: Amounts = (0, 0, 0)
READY, NO_GRANT_LEFT, NO_LIVE_NODE, NO_GRANT, UNREACHABLE, FENCED, _ = RegionStanding


def cpu(cores: int) -> Amounts:
    return (cores * 1000, cores * 1024, 0)


def room(of: Region, **changes: Any) -> RegionRoom:
    return replace(RegionRoom(of.snapshot()), **changes)


def manifest(**wanted: Any) -> WorkloadManifest:
    name = WorkloadName("api")
    return WorkloadManifest(tenant=TenantId(TENANT), name=name, spec=spec(**wanted))


def ask(
    *rooms: RegionRoom, target: Amounts = MUCH, ungranted: Amounts = NOTHING, **wanted: Any
) -> list[RegionOffer]:
    by_name = {RegionId(f"r{number}"): one for number, one in enumerate(rooms)}
    return offers(manifest(**wanted), by_name, target=target, ungranted=ungranted)


FOUR = node(cpu=4, memory=4)


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        (room(region(FOUR)), {"cpu": 1}, 4),
        (room(region(FOUR), nodes={"n1": 10}), {"cpu": 1}, 40),
        (room(region(FOUR), nodes={"n1": 10}), {"cpu": 3}, 10),
        (room(region(FOUR)), {"cpu": 1, "memory": 3}, 1),
        (room(region(FOUR)), {"cpu": 1, "spread": {"max_per_node": 2}}, 2),
        (room(region(FOUR, room=cpu(3))), {"cpu": 1}, 3),
        (room(region(FOUR, grant=cpu(2))), {"cpu": 1}, 2),
        (room(region(node(used=FULL))), {"cpu": 1}, 0),
        (room(region(FOUR)).promise(TenantId("other"), spec(cpu=3).resources, 1), {"cpu": 1}, 1),
    ],
)
def test_what_fits_now(there: RegionRoom, wanted: dict[str, Any], fits: int) -> None:
    (offer,) = ask(there, **wanted)
    assert (offer.standing, offer.fits) == (READY, fits)


@pytest.mark.parametrize(
    ("there", "standing"),
    [
        (room(region(FOUR), is_reachable=False), UNREACHABLE),
        (room(region(FOUR, is_open=False)), FENCED),
        (room(region()), NO_LIVE_NODE),
        (room(region(node(cordoned=True))), NO_LIVE_NODE),
        (room(region(node(ready=False))), NO_LIVE_NODE),
        (room(region(node(lease_epoch=None, lease_expires_at=None))), NO_LIVE_NODE),
        (room(region(node(cpu=1))), NO_LIVE_NODE),
        (room(region(FOUR, grant=None)), NO_GRANT),
        (room(region(FOUR, grant=cpu(3), in_use=cpu(3))), NO_GRANT_LEFT),
    ],
)
def test_what_keeps_a_region_from_getting_a_share(
    there: RegionRoom, standing: RegionStanding
) -> None:
    (offer,) = ask(there, cpu=2)
    assert (offer.standing, offer.fits) == (standing, 0)


def test_grant_that_is_unused_elsewhere_can_be_brought() -> None:
    poor = room(region(FOUR, grant=cpu(1), in_use=cpu(1)))
    rich = room(region(FOUR, grant=cpu(3), in_use=cpu(1)))
    assert [(one.fits, one.granted) for one in ask(poor, rich, cpu=1)] == [(2, 0), (2, 2)]
    assert [one.fits for one in ask(poor, rich, cpu=1, ungranted=cpu(1))] == [3, 3]
    assert [one.fits for one in ask(poor, rich, cpu=1, target=cpu(3))] == [1, 1]
    away = replace(rich, is_reachable=False)
    assert [one.standing for one in ask(poor, away, cpu=1)] == [NO_GRANT_LEFT, UNREACHABLE]


@pytest.mark.parametrize(
    ("grant", "used", "expected"),
    [
        (None, 1, (READY, 2, 2)),
        (cpu(0), 1, (READY, 2, 2)),
        (cpu(1), 1, (READY, 3, 3)),
        (None, 3, (NO_GRANT, 0, 0)),
    ],
)
def test_an_emergency_quota_is_beside_the_grant(
    grant: Amounts | None, used: int, expected: tuple[RegionStanding, int, int]
) -> None:
    there = room(region(FOUR, grant=grant))
    theirs = EmergencyDraw("other", cpu(9), cpu(0), 1)
    there.snapshot.draws = (EmergencyDraw(TENANT, cpu(3), cpu(used), 1), theirs)
    (offer,) = ask(there, cpu=1)
    assert (offer.standing, offer.fits, offer.granted) == expected
