"""When a job is done, by what its regions have done of it: distinct slots, region by region."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.activities.steps import PlacementKey
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.states import BindingState, RequestState
from durable.model.work.job import Job
from durable.model.work.share import DesiredShare, ShareReport, completed_in, show_slots
from durable.model.work.workload import WorkloadKind, WorkloadSpec
from durable.signals.status import WorkloadStatus
from durable.workflows.placement.state import PlacementState
from durable.workflows.workload.batch import must_check_deadline, next_parts
from durable.workflows.workload.state import WorkloadState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EAST, WEST = RegionId("east"), RegionId("west")
RISK, SCORE = TenantId("risk"), WorkloadName("score")
CORE = {"cpu": "1", "memory": "1Gi"}


def spec(slots: int = 8, **more: Any) -> WorkloadSpec:
    given = {"kind": "job", "replicas": slots, "resources": CORE, **more}
    return WorkloadSpec.model_validate(given)


def report(
    region: RegionId, done: str = "", given_up: str = "", running: int = 0, **more: Any
) -> ShareReport:
    """What a region says; the sets as they travel."""
    given: dict[str, Any] = {
        "region": region, "generation": 1, "version": 1, "at": NOW,
        "by_state": {BindingState.RUNNING: running} if running else {},
        "completed_slots": done, "given_up_slots": given_up, "request": RequestState.PLACED,
    }  # fmt: skip
    return ShareReport.model_validate({**given, **more})


def state(share: dict[RegionId, tuple[int, ...]], *reports: ShareReport, **more: Any) -> Any:
    wanted = more.pop("spec", spec())
    return WorkloadState(
        generation=1, divided_generation=1, spec=wanted, share=share, reports=list(reports), **more
    )


def status(of: WorkloadState) -> WorkloadStatus:
    return of.status(RISK, SCORE, NOW)


@pytest.mark.parametrize("slots", ["", "0", "0-3", "0-3,7,9-10", "1,3,5"])
def test_a_set_of_slots_is_short_text_and_reads_back(slots: str) -> None:
    said = report(EAST, slots)
    assert show_slots(said.completed_slots) == slots
    assert ShareReport.model_validate_json(said.model_dump_json()) == said


@pytest.mark.parametrize(
    ("east", "west", "is_done"),
    [
        pytest.param(report(EAST, "0-3"), report(WEST, "4-7"), True, id="both"),
        pytest.param(report(EAST, "0-3"), report(WEST, "4-6"), False, id="one lacks"),
        pytest.param(report(EAST, "0-3"), report(WEST, "4-6", "7"), True, id="given up"),
        pytest.param(report(EAST, "0-7"), report(WEST, "4-6", running=1), False, id="runs again"),
        pytest.param(report(EAST, "0-2", "3"), None, False, id="not heard of"),
        pytest.param(
            report(EAST, "0-1", request=RequestState.WITHDRAWN), report(WEST, "4-7"), False,
            id="ended before it got more",
        ),
    ],
)  # fmt: skip
def test_a_region_has_ended_only_if_its_report_covers_its_share(
    east: ShareReport, west: ShareReport | None, is_done: bool
) -> None:
    known = [east] if west is None else [east, west]
    assert state({EAST: (0, 1, 2, 3), WEST: (4, 5, 6, 7)}, *known).job_is_done is is_done


def test_what_two_regions_have_done_is_done_once() -> None:
    """East had done three, was lost, and west did two of them again."""
    known = (report(EAST, "0-2", given_up="3"), report(WEST, "1-7"))
    assert completed_in(known) == set(range(8))
    seen = status(state({WEST: tuple(range(1, 8)), EAST: (0,)}, *known))
    assert (seen.completed, seen.given_up, seen.phase) == (8, 0, "complete")


def test_a_job_is_not_complete_while_one_of_it_runs() -> None:
    known = (report(EAST, "0-3"), report(WEST, "4-7", running=1))
    seen = status(state({EAST: (0, 1, 2, 3), WEST: (4, 5, 6, 7)}, *known))
    [complete] = [one for one in seen.conditions if one.type == "Complete"]
    assert (complete.status, seen.completed, seen.phase) == (False, 8, "progressing")


@pytest.mark.parametrize(
    ("east", "parts"),
    [
        pytest.param(report(EAST, "0-1", running=2, at_once=3), {EAST: 2, WEST: 1}, id="stopping"),
        pytest.param(
            report(EAST, "0-1", at_once=3, slots=4), {EAST: 0, WEST: 3}, id="nobody there"
        ),
    ],
)
def test_what_a_lost_region_no_longer_runs_others_may(
    east: ShareReport, parts: dict[RegionId, int]
) -> None:
    """East keeps the two that it has done; its placement may be gone with its worker."""
    share = {EAST: (0, 1), WEST: (2, 3, 4, 5, 6, 7)}
    lost = state(
        share, east, report(WEST), spec=spec(job=Job(parallelism=3)), parts={EAST: 3, WEST: 0}
    )
    assert next_parts(lost, NOW) == parts


def test_claims_that_a_region_has_still_to_stop_count_although_its_share_is_empty() -> None:
    moved = state(
        {WEST: tuple(range(8))}, report(EAST, running=2, at_once=2), report(WEST),
        spec=spec(job=Job(parallelism=3)), parts={EAST: 2, WEST: 1},
    )  # fmt: skip
    assert next_parts(moved, NOW)[WEST] == 1


@pytest.mark.parametrize(
    ("ended", "is_late"), [(NOW, False), (NOW + timedelta(hours=2), True), (None, False)]
)
def test_a_part_that_others_have_taken_over_is_not_late(
    ended: datetime | None, is_late: bool
) -> None:
    """Its placement cannot say any more when it came to the end of what was left to it."""
    job = spec(job=Job(deadline=timedelta(hours=1)))
    known = (report(EAST, "0-1", ended_at=ended), report(WEST, "2-7", ended_at=NOW))
    share = {EAST: (0, 1), WEST: (2, 3, 4, 5, 6, 7)}
    done = state(share, *known, spec=job, admitted_at=NOW)
    assert must_check_deadline(done, NOW + timedelta(hours=3)) is is_late


@pytest.mark.parametrize(
    ("slots", "kind", "size"),
    [
        pytest.param(range(4), WorkloadKind.JOB, 4, id="whole"),
        pytest.param(range(1, 4), WorkloadKind.JOB, 0, id="rest of a job"),
        pytest.param(range(1, 4), WorkloadKind.SERVICE, 4, id="service"),
    ],
)
def test_the_rest_of_a_gang_of_which_another_region_has_done_a_part_is_placed_one_by_one(
    slots: range, kind: WorkloadKind, size: int
) -> None:
    key = PlacementKey(region=WEST, tenant=RISK, workload=SCORE, generation=1)
    gang = spec(4, kind=kind, all_or_nothing=True)
    share = DesiredShare(slots=tuple(slots), spec=gang, revision=2)
    placement = PlacementState(key=key, enqueued_at=NOW, share=share)
    assert placement.spec_to_place.gang_size == size
