"""A drill is about the service that matters most, where most of it runs."""

from durable.drills.world import busiest_region, most_important
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec


def workload(
    name: str, *, kind: str = "service", priority: int = 100, **share: int
) -> AdmittedWorkload:
    spec = {"kind": kind, "replicas": 4, "priority": priority}
    return AdmittedWorkload(
        tenant=TenantId("risk"),
        workload=WorkloadName(name),
        generation=1,
        spec=WorkloadSpec.model_validate({**spec, "resources": {"cpu": "1", "memory": "1Gi"}}),
        share={RegionId(region): tuple(range(n)) for region, n in share.items()},
    )


def test_it_is_the_service_with_the_highest_priority_that_runs() -> None:
    found = most_important(
        [
            workload("low", priority=50, east=2),
            workload("job", kind="job", priority=950, east=2),
            workload("nowhere", priority=950),
            workload("high", priority=900, east=2),
            workload("also", priority=900, east=2),
        ]
    )
    assert found is not None
    assert found.workload == "also"


def test_without_a_service_there_is_none() -> None:
    assert most_important([workload("job", kind="job", east=1)]) is None


def test_of_its_regions_it_is_the_one_with_most_replicas() -> None:
    assert busiest_region(workload("api", east=2, west=3, north=3)) == "north"
