"""What a division reports behind a fence, and what is known of a new workload."""

from datetime import UTC, datetime

import pytest

from durable.activities.division import NEW_SECONDS, NewWorkloads, WorkloadDivision
from durable.authority.reads.replicas import RegionReplicas
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.resources import Resources
from durable.model.states import BindingState, RequestState
from durable.model.work.share import ShareReport
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec
from tests.claims import a_claim

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EAST = RegionId("east")


def serving(slot: int) -> RegionalClaim:
    return a_claim(slot, state=BindingState.SERVING)


def admitted(revision: int = 1) -> AdmittedWorkload:
    return AdmittedWorkload(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        revision=revision,
        spec=WorkloadSpec(replicas=3, resources=Resources.of(100, 128)),
    )


@pytest.mark.parametrize(
    ("is_fenced", "kept", "counted"),
    [(True, {0, 1}, 1), (True, set[int](), 3), (False, {0, 1}, 3), (True, {0, 1, 2}, 0)],
)
def test_an_original_behind_a_fence_is_not_counted_beside_its_stand_in(
    is_fenced: bool, kept: set[int], counted: int
) -> None:
    report = ShareReport(
        region=EAST,
        generation=1,
        version=1,
        at=NOW,
        by_state={BindingState.SERVING: 3},
        request=RequestState.PLACED,
    )
    found = RegionReplicas({}, tuple(map(serving, range(3))), (report,), None, 0, {}, is_fenced)
    division = WorkloadDivision(admitted(), NOW, regions={EAST: found}, kept=frozenset(kept))
    [told] = division.reports
    assert told.by_state.get(BindingState.SERVING, 0) == counted
    assert told.is_known


@pytest.mark.parametrize(
    ("seconds", "revision", "is_taken"),
    [(0.0, 1, True), (NEW_SECONDS - 0.1, 1, True), (NEW_SECONDS, 1, False), (0.0, 2, False)],
)
def test_a_new_workload_is_known_for_a_moment_under_its_own_revision(
    seconds: float, revision: int, is_taken: bool
) -> None:
    moments = iter([100.0, 100.0 + seconds])
    new = NewWorkloads(lambda: next(moments))
    new.note(admitted(), is_new=True)
    assert (new.take("risk", "api", revision) == admitted()) is is_taken


def test_a_new_workload_is_divided_once_unread() -> None:
    new = NewWorkloads(lambda: 0.0)
    new.note(admitted(), is_new=True)
    assert new.take("risk", "api", None) is None, "an ending reads what there is"
    assert new.take("risk", "api", 1) == admitted()
    assert new.take("risk", "api", 1) is None


def test_what_was_changed_since_is_not_new() -> None:
    new = NewWorkloads(lambda: 0.0)
    new.note(admitted(), is_new=True)
    new.note(admitted(revision=2), is_new=False)
    assert new.take("risk", "api", 1) is None
