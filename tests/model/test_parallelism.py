"""The parts of a job's parallelism: never more in sum than allowed, and nobody waits for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.work.parallelism import RegionUse, divide_parallelism


@pytest.mark.parametrize(
    ("parallelism", "uses", "parts"),
    [
        pytest.param(4, {"a": RegionUse(6), "b": RegionUse(6)}, {"a": 2, "b": 2}, id="equal"),
        pytest.param(4, {"a": RegionUse(9), "b": RegionUse(3)}, {"a": 3, "b": 1}, id="by size"),
        pytest.param(9, {"a": RegionUse(2), "b": RegionUse(3)}, {"a": 2, "b": 3}, id="enough"),
        pytest.param(1, {"a": RegionUse(3), "b": RegionUse(5)}, {"a": 0, "b": 1}, id="one"),
        pytest.param(
            4, {"a": RegionUse(1, 2, 2), "b": RegionUse(6, 2, 2)}, {"a": 1, "b": 3}, id="passed on"
        ),
        pytest.param(1, {"a": RegionUse(3), "b": RegionUse(0, 1, 1)}, {"a": 1, "b": 0}, id="ended"),
        pytest.param(
            4, {"a": RegionUse(6, 2, 2), "b": RegionUse(6, 2, 2)}, {"a": 2, "b": 2}, id="stays"
        ),
        pytest.param(
            2, {"a": RegionUse(6, 0, 2), "b": RegionUse(6)}, {"a": 0, "b": 0}, id="unconfirmed"
        ),
        pytest.param(
            1, {"a": RegionUse(6, turn=1), "b": RegionUse(2)}, {"a": 0, "b": 1}, id="stuck before"
        ),
        pytest.param(
            1, {"a": RegionUse(6, turn=2), "b": RegionUse(2, turn=1)}, {"a": 0, "b": 1}, id="turns"
        ),
        pytest.param(2, {}, {}, id="nowhere"),
    ],
)
def test_parts(parallelism: int, uses: dict[str, RegionUse], parts: dict[str, int]) -> None:
    assert divide_parallelism(parallelism, uses) == parts


slots = st.integers(0, 8)
jobs = st.dictionaries(st.sampled_from("abcd"), slots, min_size=1)


@given(st.integers(1, 10), jobs, st.data())
def test_however_far_regions_have_come_they_never_run_more_than_allowed(
    parallelism: int, remaining: dict[str, int], data: st.DataObject
) -> None:
    """A region runs by any part that it was ever told and has not replaced, in any order."""
    told = dict.fromkeys(remaining, 0)
    obeyed = dict.fromkeys(remaining, 0)
    for _ in range(60):
        uses = {r: RegionUse(remaining[r], told[r], obeyed[r]) for r in remaining}
        told = divide_parallelism(parallelism, uses)
        assert sum(told.values()) <= parallelism
        reach = {r: min(max(told[r], obeyed[r]), remaining[r]) for r in remaining}
        assert sum(reach.values()) <= parallelism
        if not any(remaining.values()):
            return
        # Some regions hear of their part, and some of those that run something end a slot.
        heard = data.draw(st.sets(st.sampled_from(sorted(remaining))))
        obeyed |= {r: told[r] for r in heard}
        running = [r for r in remaining if obeyed[r] and remaining[r]]
        for region in running:
            remaining[region] -= data.draw(st.integers(0, 1))


@given(st.integers(1, 10), jobs)
def test_a_job_whose_running_slots_end_comes_to_its_end(
    parallelism: int, remaining: dict[str, int]
) -> None:
    parts = dict.fromkeys(remaining, 0)
    rounds = 0
    while any(remaining.values()):
        uses = {r: RegionUse(remaining[r], parts[r], parts[r]) for r in remaining}
        parts = divide_parallelism(parallelism, uses)
        # All that is allowed is used, as long as there is as much to do.
        assert sum(parts.values()) == min(parallelism, sum(remaining.values()))
        region = next(r for r in sorted(remaining) if parts[r] and remaining[r])
        remaining[region] -= 1
        rounds += 1
        assert rounds <= 32
