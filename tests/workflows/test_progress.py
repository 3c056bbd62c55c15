"""The conditions of a workload: each says what is missing, and who acts next."""

from datetime import UTC, datetime

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.resources import Resources
from durable.model.share import ShareReport
from durable.model.states import BindingState, RequestState
from durable.model.workload import Condition, WorkloadSpec
from durable.workflows.inbox import MessageLog
from durable.workflows.workload.progress import workload_status

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EAST, WEST = RegionId("east"), RegionId("west")


def report(region: RegionId, request: RequestState | None, serving: int = 0) -> ShareReport:
    states = {BindingState.SERVING: serving} if serving else {}
    return ShareReport(
        region=region, generation=1, version=1, at=NOW, by_state=states, request=request
    )


def opened(*reports: ShareReport) -> Condition:
    status = workload_status(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        observed_generation=1,
        spec=WorkloadSpec(replicas=3, resources=Resources(cpu_millis=1)),
        share={EAST: (0, 1), WEST: (2,), RegionId("north"): ()},
        reports=reports,
        rollout=None,
        progress=None,
        is_deleting=False,
        is_done=False,
        waits=(),
        conditions=(),
        messages=MessageLog(),
        now=NOW,
    )
    [found] = [one for one in status.conditions if one.type == "Opened"]
    return found


def test_a_share_without_a_placement_is_a_condition_with_a_reason_and_an_owner() -> None:
    found = opened(report(EAST, RequestState.PLACED, 2))
    assert (found.status, found.reason) == (False, "NotOpened")
    assert found.sentence == (
        "1 of 2 shares have a placement; next: the workload, which starts its placements; missing "
        "in west"
    )
    # A region that answered that it knows nothing of it.
    assert opened(report(EAST, RequestState.PLACED, 2), report(WEST, None)) == found


def test_a_share_that_its_region_knows_has_a_placement() -> None:
    found = opened(report(EAST, RequestState.PLACED, 2), report(WEST, RequestState.PENDING))
    assert (found.status, found.sentence) == (True, "2 of 2 shares have a placement")
