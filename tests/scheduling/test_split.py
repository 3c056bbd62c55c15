"""Slots over regions: in proportion, stable, and refused where no region is left."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.refusal import RefusalCode, RefusedError
from durable.scheduling.split import split
from tests.scheduling.world import spec

THREE = ["eu-central", "us-east", "us-west"]


def counts(replicas: int, **wanted: Any) -> list[int]:
    return [len(slots) for slots in split(spec(replicas=replicas, **wanted), THREE, {}).values()]


@pytest.mark.parametrize(
    ("replicas", "weights", "expected"),
    [
        (6, {}, [2, 2, 2]),
        (7, {}, [3, 2, 2]),
        (0, {}, [0, 0, 0]),
        (10, {"eu-central": 2}, [5, 3, 2]),
        (10, {"us-east": 0}, [5, 0, 5]),
        (10, {"eu-central": 5, "us-east": 3, "us-west": 2}, [5, 3, 2]),
        (1, {"us-west": 2}, [0, 0, 1]),
    ],
)
def test_shares_follow_the_weights(
    replicas: int, weights: dict[str, int], expected: list[int]
) -> None:
    assert counts(replicas, weights=weights) == expected


def test_the_first_slots_lie_in_different_regions() -> None:
    assert split(spec(replicas=5), THREE, {}) == {
        "eu-central": (0, 3),
        "us-east": (1, 4),
        "us-west": (2,),
    }


def test_residency_leaves_the_other_regions_empty() -> None:
    asked = spec(replicas=4, requirements={"regions": ["us-east", "us-west"]})
    assert split(asked, THREE, {}) == {"eu-central": (), "us-east": (0, 2), "us-west": (1, 3)}


def test_scaling_up_moves_nobody() -> None:
    before = split(spec(replicas=4), THREE, {})
    after = split(spec(replicas=6), THREE, before)
    assert all(set(before[region]) <= set(after[region]) for region in THREE)


def test_scaling_down_drops_the_highest_slots() -> None:
    before = split(spec(replicas=6), THREE, {})
    after = split(spec(replicas=3), THREE, before)
    assert sorted(slot for slots in after.values() for slot in slots) == [0, 1, 2]
    assert after == {"eu-central": (0,), "us-east": (1,), "us-west": (2,)}


def test_between_equal_claims_who_holds_more_keeps_it() -> None:
    current = {"us-west": (0, 3), "us-east": (1,), "eu-central": (2,)}
    assert split(spec(replicas=4), THREE, current) == {
        "eu-central": (2,), "us-east": (1,), "us-west": (0, 3),
    }  # fmt: skip


def test_a_region_that_is_excluded_loses_only_its_own_slots() -> None:
    before = split(spec(replicas=6), THREE, {})
    after = split(spec(replicas=6, weights={"us-west": 0}), THREE, before)
    assert after["us-west"] == ()
    assert set(before["us-east"]) < set(after["us-east"])
    assert set(before["eu-central"]) < set(after["eu-central"])


def test_a_slot_that_is_at_two_places_keeps_one() -> None:
    after = split(spec(replicas=2), ["a", "b"], {"a": (0, 1), "b": (0,)})
    assert after == {"a": (0,), "b": (1,)}


def test_a_gang_goes_to_one_region() -> None:
    assert counts(4, all_or_nothing=True) == [4, 0, 0]
    assert counts(4, all_or_nothing=True, weights={"us-west": 2}) == [0, 0, 4]


def test_a_gang_stays_where_it_is_while_it_may() -> None:
    current = {"us-east": (0, 1, 2), "us-west": (3,)}
    asked = spec(replicas=5, minimum=2, weights={"us-west": 9})
    assert split(asked, THREE, current)["us-east"] == (0, 1, 2, 3, 4)
    excluded = spec(replicas=5, minimum=2, weights={"us-east": 0})
    assert split(excluded, THREE, current)["us-west"] == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("wanted", "code", "says"),
    [
        ({"requirements": {"regions": ["mars"]}}, RefusalCode.UNKNOWN_REGION,
         "There is no region mars; the regions are eu-central, us-east, us-west."),
        ({"weights": {"mars": 0}}, RefusalCode.UNKNOWN_REGION, "There is no region mars;"),
        ({"weights": {"us-east": 0}, "requirements": {"regions": ["us-east"]}},
         RefusalCode.RESIDENCY, "Residency allows us-east and every weight there is 0;"),
        ({"weights": dict.fromkeys(THREE, 0)}, RefusalCode.RESIDENCY,
         "Residency allows eu-central, us-east, us-west and every weight there is 0;"),
    ],
)  # fmt: skip
def test_what_leaves_no_region_is_refused(
    wanted: dict[str, Any], code: RefusalCode, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        split(spec(replicas=3, **wanted), THREE, {})
    assert refused.value.refusal.code is code
    assert refused.value.refusal.sentence.startswith(says)


def test_a_refusal_stays_short_however_many_regions_there_are() -> None:
    regions = [f"{number:02}-" + "x" * 60 for number in range(60)]
    with pytest.raises(RefusedError, match="more"):
        split(spec(replicas=3, weights=dict.fromkeys(regions, 0)), regions, {})
    with pytest.raises(RefusedError, match="more"):
        split(spec(replicas=3, requirements={"regions": regions}), ["a"], {})


def test_without_any_region_everything_is_refused() -> None:
    with pytest.raises(RefusedError, match="no region"):
        split(spec(replicas=3), [], {})


weights = st.dictionaries(st.sampled_from(THREE), st.integers(1, 9))
replicas = st.integers(0, 40)


@given(replicas, weights, replicas, weights)
def test_every_slot_has_one_region_and_shares_are_within_one_of_exact(
    first: int, first_weights: dict[str, int], then: int, then_weights: dict[str, int]
) -> None:
    current = split(spec(replicas=first, weights=first_weights), THREE, {})
    after = split(spec(replicas=then, weights=then_weights), THREE, current)
    assert sorted(slot for slots in after.values() for slot in slots) == list(range(then))
    total = sum(then_weights.get(region, 1) for region in THREE)
    for region in THREE:
        assert abs(len(after[region]) - then * then_weights.get(region, 1) / total) < 1


@given(replicas, weights, replicas, weights)
def test_no_slot_moves_that_need_not(
    first: int, first_weights: dict[str, int], then: int, then_weights: dict[str, int]
) -> None:
    asked = spec(replicas=then, weights=then_weights)
    current = split(spec(replicas=first, weights=first_weights), THREE, {})
    after = split(asked, THREE, current)
    wanted = {region: [slot for slot in current[region] if slot < then] for region in THREE}
    for region in THREE:
        stayed = set(wanted[region]) & set(after[region])
        assert len(stayed) == min(len(wanted[region]), len(after[region]))
    assert split(asked, THREE, after) == after
    assert split(asked, list(reversed(THREE)), current) == after
