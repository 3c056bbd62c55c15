"""Slots over regions: in proportion, stable, and refused where no region is left."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.regions import split as split_module
from durable.scheduling.regions.room import RegionOffer, RegionStanding
from durable.scheduling.regions.split import CurrentShares, Slots
from tests.scheduling.world import spec

THREE = ["eu-central", "us-east", "us-west"]
PLENTY = 1_000
READY, NO_GRANT_LEFT, NO_LIVE_NODE, NO_GRANT, UNREACHABLE, FENCED, _ = RegionStanding


def split(
    wanted: WorkloadSpec,
    regions: list[str],
    current: Mapping[str, Slots],
    *,
    is_rebalanced: bool = False,
) -> dict[str, Slots]:
    """With room and grant for everything everywhere."""
    offers = [RegionOffer(region, fits=PLENTY, granted=PLENTY) for region in regions]
    shares = CurrentShares(current, is_rebalanced=is_rebalanced)
    return split_module.split(wanted, offers, shares)


def counts(replicas: int, **wanted: Any) -> list[int]:
    return [len(slots) for slots in split(spec(replicas=replicas, **wanted), THREE, {}).values()]


def offered(
    *fits: int | RegionStanding, replicas: int, current: CurrentShares | None = None, **wanted: Any
) -> list[int]:
    """How many slots each of three regions gets: it fits so many more, or is no better than this.

    All of them have the grant for what fits.
    """
    offers = [
        RegionOffer(region, standing=one)
        if isinstance(one, RegionStanding)
        else RegionOffer(region, fits=one, granted=one)
        for region, one in zip(THREE, fits, strict=True)
    ]
    divided = split_module.split(
        spec(replicas=replicas, **wanted), offers, current or CurrentShares()
    )
    return [len(slots) for slots in divided.values()]


@pytest.mark.parametrize(
    ("fits", "replicas", "expected"),
    [
        ((9, 9, 9), 6, [2, 2, 2]),
        ((9, 1, 9), 6, [3, 1, 2]),
        ((1, 1, 9), 6, [1, 1, 4]),
        ((9, FENCED, 9), 6, [3, 0, 3]),
        ((9, NO_LIVE_NODE, 9), 6, [3, 0, 3]),
        ((NO_GRANT, NO_GRANT_LEFT, 9), 6, [0, 0, 6]),
        ((9, UNREACHABLE, UNREACHABLE), 6, [6, 0, 0]),
        # What fits is placed, and the rest waits where something could still start it.
        ((2, 6, NO_LIVE_NODE), 10, [4, 6, 0]),
        ((0, 0, FENCED), 6, [3, 3, 0]),
        ((NO_GRANT_LEFT, NO_LIVE_NODE, FENCED), 6, [6, 0, 0]),
        ((NO_LIVE_NODE, NO_LIVE_NODE, FENCED), 6, [3, 3, 0]),
        ((FENCED, FENCED, FENCED), 6, [2, 2, 2]),
    ],
)
def test_new_slots_go_where_room_and_grant_are(
    fits: tuple[int | RegionStanding, ...], replicas: int, expected: list[int]
) -> None:
    assert offered(*fits, replicas=replicas) == expected


SERVES = CurrentShares({"eu-central": (0, 1, 2, 3)})


@pytest.mark.parametrize(
    ("fits", "replicas", "expected"),
    [
        # An empty region was declared, a region has become full, is fenced or does not answer.
        ((9, NO_LIVE_NODE, 9), 4, [4, 0, 0]),
        ((0, 9, 9), 4, [4, 0, 0]),
        ((FENCED, 9, 9), 4, [4, 0, 0]),
        ((UNREACHABLE, 9, 9), 4, [4, 0, 0]),
        # What is added goes to those that have less.
        ((9, 9, 9), 6, [4, 1, 1]),
        ((0, 1, 9), 8, [4, 1, 3]),
        ((9, 9, 9), 2, [2, 0, 0]),
    ],
)
def test_what_serves_is_not_taken_down_to_rebalance(
    fits: tuple[int | RegionStanding, ...], replicas: int, expected: list[int]
) -> None:
    assert offered(*fits, replicas=replicas, current=SERVES) == expected


def test_who_changes_the_weights_asks_for_slots_to_move() -> None:
    asked = CurrentShares(SERVES.by_region, is_rebalanced=True)
    assert offered(9, 9, 9, replicas=4, current=asked, weights={"us-west": 2}) == [1, 1, 2]
    assert offered(9, 9, 0, replicas=4, current=asked, weights={"us-west": 2}) == [2, 2, 0]


def test_what_is_started_anew_leaves_a_region_that_cannot_start_it() -> None:
    anew = CurrentShares({"eu-central": (0, 1), "us-east": (2, 3)}, is_rollout=True)
    assert offered(9, 0, FENCED, replicas=4, current=anew) == [2, 2, 0]
    assert offered(9, FENCED, 9, replicas=4, current=anew) == [2, 0, 2]
    assert offered(FENCED, FENCED, FENCED, replicas=4, current=anew) == [2, 2, 0]


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ((3, 9, 9), [0, 4, 0]),
        ((3, 3, 4), [0, 0, 4]),
        ((FENCED, UNREACHABLE, 4), [0, 0, 4]),
        ((1, 3, FENCED), [0, 4, 0]),
        ((FENCED, NO_LIVE_NODE, NO_GRANT_LEFT), [0, 0, 4]),
    ],
)
def test_a_gang_goes_where_all_of_it_fits(
    fits: tuple[int | RegionStanding, ...], expected: list[int]
) -> None:
    assert offered(*fits, replicas=4, all_or_nothing=True) == expected


def test_a_gang_prefers_the_region_that_has_its_grant_already() -> None:
    offers = [
        RegionOffer("eu-central", fits=9, granted=1),
        RegionOffer("us-east", fits=9, granted=9),
    ]
    gang = spec(replicas=4, all_or_nothing=True)
    assert split_module.split(gang, offers)["us-east"] == (0, 1, 2, 3)


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
    after = split(spec(replicas=6, weights={"us-west": 0}), THREE, before, is_rebalanced=True)
    assert after["us-west"] == ()
    assert set(before["us-east"]) < set(after["us-east"])
    assert set(before["eu-central"]) < set(after["eu-central"])


def test_a_slot_that_is_at_two_places_keeps_one() -> None:
    after = split(spec(replicas=2), ["a", "b"], {"a": (0, 1), "b": (0,)}, is_rebalanced=True)
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
    after = split(spec(replicas=then, weights=then_weights), THREE, current, is_rebalanced=True)
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
    after = split(asked, THREE, current, is_rebalanced=True)
    wanted = {region: [slot for slot in current[region] if slot < then] for region in THREE}
    for region in THREE:
        stayed = set(wanted[region]) & set(after[region])
        assert len(stayed) == min(len(wanted[region]), len(after[region]))
    assert split(asked, THREE, after, is_rebalanced=True) == after
    assert split(asked, list(reversed(THREE)), current, is_rebalanced=True) == after


fits = st.tuples(*[st.integers(0, 20) | st.sampled_from(RegionStanding)] * 3)


@given(fits, replicas, weights, replicas, weights, st.booleans(), st.booleans())
def test_as_much_as_fits_is_given_where_it_fits_and_nothing_moves_unasked(
    now: tuple[int | RegionStanding, ...],
    first: int,
    first_weights: dict[str, int],
    then: int,
    then_weights: dict[str, int],
    is_rollout: bool,
    is_rebalanced: bool,
) -> None:
    before = split(spec(replicas=first, weights=first_weights), THREE, {})
    current = CurrentShares(before, is_rollout, is_rebalanced)
    offers = [
        RegionOffer(region, standing=one)
        if isinstance(one, RegionStanding)
        else RegionOffer(region, fits=one)
        for region, one in zip(THREE, now, strict=True)
    ]
    after = split_module.split(spec(replicas=then, weights=then_weights), offers, current)
    assert sorted(slot for slots in after.values() for slot in slots) == list(range(then))
    best = min(offer.standing for offer in offers)
    had = {region: {slot for slot in before[region] if slot < then} for region in THREE}
    everything_fits = sum(len(had[o.region]) + o.fits for o in offers) >= then
    for offer in offers:
        added = set(after[offer.region]) - had[offer.region]
        assert not added or offer.standing is best
        if everything_fits and not is_rollout:
            assert len(after[offer.region]) <= len(had[offer.region]) + offer.fits
        if not is_rollout and not is_rebalanced:
            assert had[offer.region] <= set(after[offer.region])


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ((PLENTY, PLENTY, PLENTY), [0, 2, 4]),
        # What fits nowhere waits in the open region, not in the closed one.
        ((PLENTY, PLENTY, 0), [0, 2, 4]),
        ((PLENTY, PLENTY, FENCED), [0, 2, 4]),
    ],
)
def test_a_closed_region_keeps_what_it_has_and_gets_nothing_of_a_lost_one(
    fits: tuple[int | RegionStanding, ...], expected: list[int]
) -> None:
    current = CurrentShares(
        {"us-east": (2, 3), "us-west": (4, 5)},
        lost=frozenset({"eu-central"}),
        closed=frozenset({"us-east"}),
    )
    assert offered(*fits, replicas=6, current=current) == expected


def test_where_every_other_region_is_closed_nothing_leaves_the_lost_one() -> None:
    closed = CurrentShares(lost=frozenset({"eu-central"}), closed=frozenset({"us-east", "us-west"}))
    with pytest.raises(RefusedError, match="which is lost"):
        offered(PLENTY, PLENTY, PLENTY, replicas=3, current=closed)
