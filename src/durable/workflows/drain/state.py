"""What a drain remembers, and what follows from it."""

from dataclasses import dataclass, field

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.drain_steps import ACTOR
    from durable.model.drain import Drain, DrainProgress, DrainState, NodesTarget
    from durable.model.ids import ActorId
    from durable.signals.drains import DrainStatus
    from durable.workflows.inbox import MessageLog


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
