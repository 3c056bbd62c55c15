"""Takes note of what shares have come to; what is observed within milliseconds goes together."""

from dataclasses import dataclass

from durable.authority.db.batching import PATIENT_GATHER_SECONDS, Batcher
from durable.authority.db.connection import Databases
from durable.authority.db.fair_queue import Turn
from durable.authority.recovery.readiness import read_recoverable
from durable.authority.workloads.rollouts import Completion, complete_generations
from durable.model.ids import Generation, TenantId, WorkloadName
from durable.model.recovery.readiness import Recoverable
from durable.signals.names import WORKLOAD_CONTROLLER

MAX_OBSERVED_PER_CALL = 200


@dataclass(frozen=True)
class ObservedWorkload:
    """A workload whose shares were read, and the generation of which every replica serves."""

    tenant: TenantId
    workload: WorkloadName
    completes: Generation | None


class ObservationQueue(Batcher[ObservedWorkload, Recoverable | None]):
    """Records which generations are complete; answers whether the workload would come back."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        super().__init__(
            "queue of observed workloads",
            "observation",
            self._observe,
            max_batch=MAX_OBSERVED_PER_CALL,
            gather_seconds=PATIENT_GATHER_SECONDS,
            turn_of=lambda one: Turn(one.tenant),
        )

    async def _observe(self, observed: list[ObservedWorkload]) -> list[Recoverable | None]:
        completions = [
            Completion(one.tenant, one.workload, one.completes)
            for one in observed
            if one.completes is not None
        ]
        if completions:
            await complete_generations(self._databases, completions, actor=WORKLOAD_CONTROLLER)
        names = [(one.tenant, one.workload) for one in observed]
        recoverable = await read_recoverable(self._databases, names)
        return [recoverable.get(name) for name in names]
