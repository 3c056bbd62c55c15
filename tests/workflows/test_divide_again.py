"""A last step whose workflow task was lost is taken again, and finds what became of a job."""

from durable.activities.steps import DivideStep
from durable.activities.workload import WorkloadActivities
from durable.authority.sides import GlobalSide
from durable.model.ids import TenantId, WorkloadName
from durable.signals.names import workload_id
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet


async def test_a_job_that_has_ended_is_divided_again_and_keeps_its_counts(plane: Plane) -> None:
    await plane.load(small_fleet("east", "west"))
    await (await plane.host(EAST, WEST)).work(EAST, WEST)
    await plane.durable.apply(manifest("score", replicas=4, kind="job"), request_id="run")
    name = (TenantId("risk"), WorkloadName("score"))
    await plane.durable.client.get_workflow_handle(workload_id(*name)).result()

    async with GlobalSide(plane.databases) as side:
        activities = WorkloadActivities(side, plane.durable.client)
        step = DivideStep(tenant=name[0], workload=name[1], ending="the job is done")
        divided = await activities.divide(step)
    assert sum(report.completed for report in divided.reports) == 4
    assert (divided.claims, divided.open) == (0, ())
