"""What a drain remembers, and what follows from it."""

from dataclasses import dataclass, field

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.activities.drain_steps import ACTOR
    from durable.model.fleet.drain import Drain, DrainProgress, DrainState, NodesTarget
    from durable.model.ids import ActorId, NodeId, RegionId
    from durable.signals.drains import DrainStatus
    from durable.signals.names import drain_id
    from durable.validation.value import Value
    from durable.workflows.continued import continued
    from durable.workflows.inbox import MessageLog
    from durable.workflows.starts import read_start

EXAMPLE = '{"target": {"region": "east", "kind": "node", "name": "node-7"}}'
# Of a workflow that was started with something else than a target, and fails at once.
NO_TARGET = NodesTarget.of_node(RegionId("none"), NodeId("none"))


@dataclass
class Ending:
    """How it is to end: decided, and not yet recorded in the region."""

    state: DrainState
    outcome: str
    actor: ActorId = ACTOR


@dataclass
class DrainMemory:
    """It goes along when the workflow continues as new."""

    drain: Drain | None = None
    progress: DrainProgress | None = None
    ending: Ending | None = None
    # How often in a row nothing had changed.
    tries: int = 0
    unreachable: str = ""
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def is_over(self) -> bool:
        return self.drain is not None and self.drain.state is not DrainState.DRAINING

    def status(self, target: NodesTarget) -> DrainStatus:
        """What the query answers."""
        return DrainStatus(
            target=target,
            drain=self.drain,
            progress=self.progress,
            unreachable=self.unreachable,
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
        )


@dataclass
class DrainStart:
    """What a drain is started with; `memory` only when it continues as new."""

    target: NodesTarget
    memory: DrainMemory | None = None


class StartDrain(Value):
    """What somebody starts a drain with; a memory that comes along is not believed."""

    target: NodesTarget


def start_of(raw: RawValue | None) -> DrainStart:
    """What the run before this one left, or what somebody starts it with; refused if wrong."""
    left = continued(raw)
    if left is not None:
        return workflow.payload_converter().from_payload(left.payload, DrainStart)
    given = read_start(raw, StartDrain, lambda it: drain_id(it.target), EXAMPLE)
    return DrainStart(given.target)
