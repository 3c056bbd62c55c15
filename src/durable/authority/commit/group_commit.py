"""Group commit: intents that arrive within milliseconds share one transaction and one fsync."""

from functools import partial

from durable.authority.commit.regional_commit import MAX_BATCH, commit_intents
from durable.authority.db.batching import MAX_WAITING, Batcher
from durable.authority.db.connection import Databases
from durable.model.ids import RegionId
from durable.model.intents import AnyIntent, Granted, Refused


class GroupCommit(Batcher[AnyIntent, Granted | Refused]):
    """One region's queue of intents; each has its own outcome, recorded under its key."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        engine = databases.at_region(region, "durable_commit")
        self._region = region
        super().__init__(
            f"commit queue of {region}",
            "intent",
            partial(commit_intents, engine, region),
            max_batch=MAX_BATCH,
            max_waiting=MAX_WAITING,
        )

    async def submit(self, item: AnyIntent) -> Granted | Refused:
        """The intent's outcome, once its batch has committed."""
        assert item.region == self._region, "a queue is of one region"
        return await super().submit(item)
