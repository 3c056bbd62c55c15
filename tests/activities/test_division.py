"""What a division reports of a workload whose originals run on behind a fence."""

from datetime import UTC, datetime

import pytest

from durable.activities.division import WorkloadDivision
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


@pytest.mark.parametrize(
    ("is_fenced", "kept", "counted"),
    [(True, {0, 1}, 1), (True, set[int](), 3), (False, {0, 1}, 3), (True, {0, 1, 2}, 0)],
)
def test_an_original_behind_a_fence_is_not_counted_beside_its_stand_in(
    is_fenced: bool, kept: set[int], counted: int
) -> None:
    workload = AdmittedWorkload(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        spec=WorkloadSpec(replicas=3, resources=Resources.of(100, 128)),
    )
    report = ShareReport(
        region=EAST,
        generation=1,
        version=1,
        at=NOW,
        by_state={BindingState.SERVING: 3},
        request=RequestState.PLACED,
    )
    found = RegionReplicas({}, tuple(map(serving, range(3))), (report,), None, 0, {}, is_fenced)
    division = WorkloadDivision(workload, NOW, regions={EAST: found}, kept=frozenset(kept))
    [told] = division.reports
    assert told.by_state.get(BindingState.SERVING, 0) == counted
    assert told.is_known
