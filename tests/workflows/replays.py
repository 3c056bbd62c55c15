"""Histories are replayed by the workflows of today, wherever they came from."""

from temporalio.worker import Replayer, WorkflowRunner

from durable.temporal.connection import data_converter
from durable.temporal.sandbox import sandbox
from durable.workflows.drain.workflow import DrainWorkflow
from durable.workflows.override.workflow import OverrideWorkflow
from durable.workflows.placement.workflow import Placement
from durable.workflows.policy.workflow import PolicyWorkflow
from durable.workflows.recovery.workflow import RecoveryWorkflow
from durable.workflows.workload.workflow import Workload
from tests.workflows.plane import Plane


def replayer(runner: WorkflowRunner | None = None) -> Replayer:
    return Replayer(
        workflows=[
            DrainWorkflow,
            OverrideWorkflow,
            Placement,
            PolicyWorkflow,
            RecoveryWorkflow,
            Workload,
        ],
        data_converter=data_converter,
        workflow_runner=runner or sandbox(),
    )


async def every_history_replays(plane: Plane) -> None:
    """What a run went through, killed or not, is what its workflow would do again."""
    histories = plane.durable.client.list_workflows().map_histories()
    results = await replayer().replay_workflows(histories, raise_on_replay_failure=False)
    assert results.replay_failures == {}
