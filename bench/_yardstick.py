"""The yardstick: a workflow of one local activity that does nothing."""

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def nothing() -> int:
    return 1


@workflow.defn
class Yardstick:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_local_activity(
            nothing, start_to_close_timeout=timedelta(seconds=10)
        )
