"""What a policy's workflow remembers; where its revision is, the authority knows."""

from dataclasses import dataclass, field

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import PolicyRevision
    from durable.model.policy.rollout import PolicyProgress
    from durable.signals.names import policy_id
    from durable.signals.policies import PolicyStatus, StartPolicy
    from durable.workflows.continued import continued
    from durable.workflows.inbox import MessageLog
    from durable.workflows.starts import read_start


@dataclass
class PolicyMemory:
    """It goes along when the workflow continues as new."""

    progress: PolicyProgress | None = None
    unreachable: str = ""
    # It cannot be looked after: there is no such revision.
    is_refused: bool = False
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def is_over(self) -> bool:
        return self.is_refused or (self.progress is not None and self.progress.rollout.is_settled)

    def status(self, revision: PolicyRevision) -> PolicyStatus:
        """What the query answers."""
        return PolicyStatus(
            revision=revision,
            progress=self.progress,
            unreachable=self.unreachable,
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
        )


@dataclass
class PolicyStart:
    """What it continues as new with."""

    revision: PolicyRevision
    memory: PolicyMemory


def start_of(raw: RawValue | None) -> PolicyStart:
    """What the run before this one left, or what somebody starts it with; refused if wrong."""
    left = continued(raw)
    if left is not None:
        return workflow.payload_converter().from_payload(left.payload, PolicyStart)
    given = read_start(raw, StartPolicy, lambda it: policy_id(it.revision), '{"revision": NUMBER}')
    return PolicyStart(given.revision, PolicyMemory())
