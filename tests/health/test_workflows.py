"""Which wanted workflows are missing: a pure comparison, case by case."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus as Status

from durable.authority.reads.wanted import LastChanges, WantedWorkload
from durable.health.workflows import judge, placements_of
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.work.workload import WorkloadKind
from durable.temporal.running import cause_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
WORKLOAD, EAST, WEST = (
    "workload/risk/api",
    "placement/risk/api/g2/east",
    "placement/risk/api/g2/west",
)


def wanted(**values: Any) -> WantedWorkload:
    known: dict[str, Any] = {
        "tenant": TenantId("risk"),
        "workload": WorkloadName("api"),
        "generation": 2,
        "kind": WorkloadKind.SERVICE,
        "deleting": False,
        "slots_by_region": {RegionId("east"): 2, RegionId("west"): 1},
        "misplaced": 0,
    }
    return WantedWorkload(**{**known, **values})


def changed(seconds_ago: float) -> LastChanges:
    return LastChanges(at={("risk", "api"): NOW - timedelta(seconds=seconds_ago)}, now=NOW)


JOB = {"kind": WorkloadKind.JOB}
LONG_AGO, JUST_NOW = changed(3600), changed(1)
NOTHING: dict[str, list[str]] = {}

CASES: list[tuple[dict[str, Any], dict[str, Status | None], LastChanges, dict[str, list[str]]]] = [
    ({}, {WORKLOAD: None}, LONG_AGO, {"unmanaged": ["risk/api"]}),
    ({}, {WORKLOAD: Status.TERMINATED}, JUST_NOW, {"unmanaged": ["risk/api"]}),
    # The visibility store was late.
    ({}, {WORKLOAD: Status.RUNNING, EAST: Status.RUNNING}, LONG_AGO, NOTHING),
    # An unmanaged workload speaks for its placements.
    ({}, {WORKLOAD: None, EAST: None, WEST: None}, LONG_AGO, {"unmanaged": ["risk/api"]}),
    ({}, {EAST: Status.TERMINATED}, LONG_AGO, {"missing": [EAST]}),
    ({}, {EAST: None, WEST: None}, JUST_NOW, {"opening": [EAST, WEST]}),
    # A job's placement comes to its end; a service's does not.
    (JOB, {EAST: Status.COMPLETED}, LONG_AGO, NOTHING),
    (JOB, {EAST: Status.FAILED}, LONG_AGO, {"missing": [EAST]}),
    ({}, {EAST: Status.COMPLETED}, LONG_AGO, {"missing": [EAST]}),
    ({"deleting": True}, {EAST: None}, LONG_AGO, NOTHING),
    # Of an older generation: nobody wants it any more.
    ({"generation": 3}, {EAST: None}, LONG_AGO, NOTHING),
]


@pytest.mark.parametrize(("values", "statuses", "changes", "expected"), CASES)
def test_what_is_wanted_and_does_not_run_is_named(
    values: dict[str, Any],
    statuses: dict[str, Status | None],
    changes: LastChanges,
    expected: dict[str, list[str]],
) -> None:
    found = judge([wanted(**values)], {}, list(statuses), statuses, changes, {})
    named = {name: list(getattr(found, name)) for name in ("unmanaged", "missing", "opening")}
    assert {name: ids for name, ids in named.items() if ids} == expected
    assert len(found.findings) == len(expected.keys() - {"opening"})


def test_of_a_workload_that_rolls_its_regions_say_which_placements_they_opened() -> None:
    rolling = wanted(is_rolling=True)
    before = "placement/risk/api/g1/west"
    opened = {(rolling.tenant, rolling.workload): [EAST, before]}
    assert placements_of(rolling, {}) == ()
    assert placements_of(rolling, opened) == [EAST, before]
    running = {EAST: Status.RUNNING, before: None}
    assert judge([rolling], opened, list(running), running, LONG_AGO, {}).missing == (before,)


def test_suspects_that_were_not_looked_at_are_taken_to_be_missing() -> None:
    found = judge([wanted()], {}, [EAST], {}, None, {})
    assert found.missing == (EAST,)


def test_a_workload_wants_one_placement_for_each_of_its_regions() -> None:
    assert placements_of(wanted(), {}) == [EAST, WEST]


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (
            ["category=WorkflowTaskFailed", "cause=WorkflowTaskFailedCauseNonDeterministicError"],
            "non deterministic error",
        ),
        (
            ["category=WorkflowTaskTimedOut", "cause=WorkflowTaskTimedOutCauseStartToClose"],
            "start to close",
        ),
        (["category=WorkflowTaskTimedOut"], "timed out"),
        (["something else"], "unknown"),
    ],
)
def test_a_reported_problem_is_put_in_words(problems: list[str], words: str) -> None:
    assert cause_of(problems) == words
