"""A gpu that is not healthy takes no work, though nobody holds it."""

from durable.model.placement.pending_reasons import PendingCode
from durable.model.resources import DIMENSIONS
from durable.scheduling.filters.filter import Filter, same_words
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.working_set import RowSelection, WorkingSet

_GPUS = DIMENSIONS.index("gpus")


def _too_few_healthy(working: WorkingSet, rows: RowSelection) -> Mask | None:
    gpus, unhealthy = working.requested[_GPUS], working.columns.unhealthy_gpus
    return working.free[rows, _GPUS] - unhealthy[rows] < gpus if gpus else None


DEVICES = Filter(
    "unhealthy_devices", PendingCode.CAPACITY, _too_few_healthy, same_words("too few healthy gpus")
)
