"""A workflow that is in the middle of something when its server is killed."""

from datetime import timedelta

from temporalio import workflow


@workflow.defn
class Waiting:
    """Collects words until the signal to finish."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._finished = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self._finished, timeout=timedelta(minutes=10))
        return self._words

    @workflow.query
    def words(self) -> list[str]:
        return self._words

    @workflow.signal
    def say(self, word: str) -> None:
        self._words.append(word)

    @workflow.signal
    def finish(self) -> None:
        self._finished = True
