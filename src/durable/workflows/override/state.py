"""What an override remembers, and what follows from it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.activities.override_steps import Seen, Spread
    from durable.model.overrides.override import Override
    from durable.model.refusal import Refusal
    from durable.signals.overrides import OverrideStatus
    from durable.workflows.continued import continued
    from durable.workflows.inbox import MessageLog

PREFIX = "override/"


@dataclass
class OverrideMemory:
    """It goes along when the workflow continues as new."""

    override: Override | None = None
    # Why what it was started with is no proposal, or was refused.
    refused: Refusal | None = None
    # By how much the authority's clock is ahead of the workflow's.
    clock_ahead_seconds: float = 0.0
    spread: Spread | None = None
    spread_at: datetime | None = None
    unreachable: str = ""
    messages: MessageLog = field(default_factory=MessageLog)

    def see(self, seen: Seen, now: datetime) -> None:
        self.override = seen.override or self.override
        self.clock_ahead_seconds = (seen.now - now).total_seconds()

    def time_there(self, now: datetime) -> datetime:
        """The authority's time, as far as it is known here."""
        return now + timedelta(seconds=self.clock_ahead_seconds)

    @property
    def is_spread(self) -> bool:
        """Whether every region obeys it as it is now."""
        override, spread = self.override, self.spread
        if override is None or spread is None:
            return False
        return spread.number >= override.number and not spread.missing

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and every region knows."""
        return self.override is not None and self.override.has_ended and self.is_spread

    def status(self) -> OverrideStatus:
        """What the query answers."""
        spread = self.spread
        return OverrideStatus(
            override=self.override,
            regions=() if spread is None else spread.regions,
            missing={} if spread is None else spread.missing,
            unreachable=self.unreachable,
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
        )


@dataclass
class OverrideStart:
    """What an override continues as new with."""

    memory: OverrideMemory
    # What it was started with, as it came, if it was not taken yet.
    proposal: str | None = None


def start_of(raw: RawValue | None) -> OverrideStart | None:
    """What the run before this one left; whatever people start it with is a proposal."""
    left = continued(raw)
    if left is None:
        return None
    return workflow.payload_converter().from_payload(left.payload, OverrideStart)


def proposal_of(start: OverrideStart) -> RawValue | None:
    """What the first run was started with, if no run has taken it yet."""
    if start.proposal is None:
        return None
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=start.proposal.encode()))
