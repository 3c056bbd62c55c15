"""What an override has done so far, in the words of `durable get overrides`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.authority.overrides.reads import RegionalEffect
from durable.model.ids import OverrideId, RegionId
from durable.model.overrides.override import Override
from durable.resources.orders import override_row, time_left

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME, EAST, WEST = OverrideId("o-1"), RegionId("east"), RegionId("west")
SCOPES = {
    "hold": {"tenant": "risk", "workload": "api"},
    "avoid-zone": {"region": "east", "zone": "a"},
    "emergency-quota": {"region": "east", "tenant": "risk"},
    "recovery-budget": {"region": "east"},
}
EFFECTS = {
    "avoid-zone": {"move": True},
    "emergency-quota": {"amount": {"cpu": 8}},
    "recovery-budget": {"amount": {"cpu": 8}, "incident": "west-2"},
}
DRAW = (8_000, 0, 0)


def override(kind: str = "hold", **fields: Any) -> Override:
    times = {"proposed_at": NOW, "expires_at": NOW + timedelta(hours=1), "latest_expiry": NOW}
    given = {"id": NAME, "kind": kind, "scope": SCOPES[kind], "effect": EFFECTS.get(kind, {})}
    who = {"actor": "person:ann", "reason": "INC-1", "ttl": "1h", "state": "active"}
    return Override.model_validate({**given, **who, **times, **fields})


def effect(
    *, is_obeyed: bool = True, marked: int = 0, left_to_move: int = 0, **fields: Any
) -> RegionalEffect:
    return RegionalEffect(is_obeyed, marked, left_to_move, **fields)


def shown(made: Override, **regions: RegionalEffect) -> str:
    by_region = {RegionId(region): {made.id: one} for region, one in regions.items()}
    return override_row(made, by_region, NOW).so_far


@pytest.mark.parametrize(
    ("kind", "found", "words"),
    [
        ("emergency-quota", effect(draw=DRAW, used=(2_000, 0, 0)), "east: 2 cpu of 8 cpu in use"),
        (
            "emergency-quota",
            effect(is_obeyed=False, draw=DRAW, used=(2_000, 0, 0)),
            "east: 2 cpu of 8 cpu in use, over quota until that has ended",
        ),
        ("recovery-budget", effect(draw=DRAW, used=(500, 0, 0)), "east: 500m cpu of 8 cpu in use"),
        (
            "recovery-budget",
            effect(is_obeyed=False, draw=DRAW, used=(500, 0, 0)),
            "east: 500m cpu of 8 cpu in use, until that is replaced",
        ),
        ("avoid-zone", effect(marked=5, left_to_move=5), "east: 0 of 5 replicas moved"),
        ("avoid-zone", effect(marked=5, left_to_move=2), "east: 3 of 5 replicas moved"),
        ("avoid-zone", effect(marked=1, left_to_move=0), "east: 1 of 1 replica moved"),
        ("hold", effect(held_back=1), "east: 1 replica held back"),
        ("hold", effect(held_back=3), "east: 3 replicas held back"),
        ("hold", effect(), "obeyed in east"),
    ],
)
def test_the_effect_in_a_region_is_said_in_words(
    kind: str, found: RegionalEffect, words: str
) -> None:
    assert shown(override(kind), east=found) == words


def test_each_region_that_has_something_to_say_is_named() -> None:
    both = shown(override(), east=effect(held_back=2), west=effect(held_back=1))
    assert both == "east: 2 replicas held back; west: 1 replica held back"
    assert shown(override(), east=effect(), west=effect(held_back=1)) == (
        "west: 1 replica held back"
    )
    assert shown(override(), east=effect(), west=effect()) == "obeyed in east, west"


def test_what_has_no_effect_says_why() -> None:
    waits = override("emergency-quota", state="proposed")
    assert shown(waits) == "none yet: a second person has to approve it"
    assert shown(override()) == "", "no region has heard of it yet"
    ended = override("emergency-quota", state="revoked", outcome="revoked by person:ada: over")
    assert shown(ended) == "revoked by person:ada: over"
    still = effect(is_obeyed=False, draw=DRAW, used=(2_000, 0, 0))
    assert shown(ended, east=still) == (
        "revoked by person:ada: over; east: 2 cpu of 8 cpu in use, over quota until that has ended"
    )


def test_only_regions_that_obey_it_count_as_such() -> None:
    still = effect(is_obeyed=False, draw=DRAW, used=(2_000, 0, 0))
    found = {EAST: {NAME: still}, WEST: {NAME: effect(draw=DRAW, used=(0, 0, 0))}}
    assert override_row(override("emergency-quota"), found, NOW).obeyed_in == (WEST,)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, "1h"),
        ({"expires_at": NOW + timedelta(milliseconds=900)}, "ends now"),
        ({"expires_at": NOW - timedelta(hours=1)}, "ends now"),
        ({"state": "expired"}, ""),
    ],
)
def test_the_time_left_is_said_until_it_has_ended(fields: dict[str, Any], left: str) -> None:
    assert time_left(override(**fields), NOW) == left
