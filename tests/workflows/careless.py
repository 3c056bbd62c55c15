"""Two workflows that are not deterministic, by way of a module that they import as ours do."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from tests.workflows import dice


@workflow.defn
class Gambler:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(timedelta(seconds=dice.roll()))


@workflow.defn
class Hurried:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: dice.look_at_the_clock() > "2000")
