"""How a region lives: on a lease from the global side, until it is fenced."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, Field

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.recovery.detection import RegionCondition, RegionMaintenance
from durable.model.recovery.recoveries import RecoveryKey
from durable.model.states import RegionState
from durable.validation.value import Value

# Two clocks are never compared, but a lease is measured by both; one may run a little faster.
MARGIN = timedelta(seconds=3)
# What a clock is corrected by without being taken for one that jumped.
STEP = timedelta(seconds=1)


class RegionFact(Value):
    """What the global side knows of a region; what the region itself has is a copy."""

    region: RegionId
    epoch: int
    state: RegionState
    since: AwareDatetime
    reason: str = ""
    evidence: Mapping[str, Any] = Field(default={})
    # None: no worker of the region ever renewed a lease.
    lease_expires_at: AwareDatetime | None = None
    lease_holder: str | None = None
    # How often it was renewed, and how many of these renewals the region has shown to have had.
    lease_number: int = 0
    known_number: int = 0
    # How long it lasts from a renewal.
    lease_seconds: float | None = None
    # Whether its lease may be extended although it is fenced, since its own database obeys.
    is_leased_fenced: bool = False
    # When its worker last saw the region as it was; None: it never said.
    watched_at: AwareDatetime | None = None
    # What it is taken for from outside; None: it was not watched yet.
    seen: RegionCondition | None = None
    # The last time somebody said that it would be silent for a while.
    maintenance: RegionMaintenance | None = None
    # When all of this was read, by the global side's clock.
    read_at: AwareDatetime

    @property
    def is_fenced(self) -> bool:
        return self.state is RegionState.FENCED

    @property
    def last_sign_at(self) -> datetime | None:
        """When the region last showed the global side that it lives; None: it never did.

        A renewal of its lease and a look of its worker both need the region's own database.
        """
        signs = [] if self.watched_at is None else [self.watched_at]
        if self.lease_expires_at is not None and self.lease_seconds is not None:
            signs.append(self.lease_expires_at - timedelta(seconds=self.lease_seconds))
        return max(signs, default=None)

    @property
    def has_lapsed(self) -> bool:
        return self.lease_expires_at is not None and self.lease_expires_at <= self.read_at

    @property
    def current_maintenance(self) -> RegionMaintenance | None:
        """The mark that is in force."""
        mark = self.maintenance
        return mark if mark is not None and self.read_at < mark.until else None

    @property
    def is_restored(self) -> bool:
        """Whether it is fenced because a database was restored, and not for a recovery."""
        return self.is_fenced and "restored" in self.evidence

    @property
    def loss(self) -> RecoveryKey:
        """Which loss of it is under way, or would be the next one."""
        epoch = self.epoch if self.is_fenced else self.epoch + 1
        return RecoveryKey(region=self.region, epoch=epoch)

    @property
    def is_lease_ahead(self) -> bool:
        """Whether its lease seems to last longer than leases do, since the clock went back."""
        if self.lease_expires_at is None or self.lease_seconds is None:
            return False
        longest = timedelta(seconds=self.lease_seconds) + STEP
        return self.lease_expires_at > self.read_at + longest

    @property
    def movable_at(self) -> datetime | None:
        """When a fenced region's slots may be handed over without it; None if never."""
        if not self.is_fenced or self.lease_expires_at is None:
            return None
        return self.lease_expires_at + MARGIN

    @property
    def is_movable(self) -> bool:
        """Whether that moment has come."""
        at = self.movable_at
        return at is not None and at <= self.read_at


class HeldLease(Value):
    """The region's own copy of its lease, by a clock that may jump.

    An end that is further away than the lease is long was written by a clock that was ahead; and
    after a clock went back nobody can tell how much of the lease is over.
    """

    expires_at: AwareDatetime
    # How long it lasts from a renewal.
    length_seconds: float
    # The latest moment that this clock showed.
    seen_at: AwareDatetime | None = None
    # When the clock was last found to have gone back, which ended the lease.
    went_back_at: AwareDatetime | None = None

    def has_jumped(self, now: datetime) -> bool:
        """Whether the clock went back since; then the lease is void until it is renewed."""
        ended = self.went_back_at is not None and self.expires_at <= self.went_back_at
        return ended or self.must_settle(now)

    def must_settle(self, now: datetime) -> bool:
        """Whether the jump is yet to be dealt with."""
        went_back = self.seen_at is not None and now < self.seen_at - STEP
        longest = timedelta(seconds=self.length_seconds) + MARGIN
        return went_back or self.expires_at > now + longest

    def seconds_left(self, now: datetime) -> float:
        """How long it lasts yet; nothing after a jump."""
        if self.has_jumped(now):
            return 0.0
        return max(0.0, (self.expires_at - now).total_seconds())


class LeaseLeft(Value):
    """How much of a region's lease is left for its nodes, as an agent is told."""

    # None: its nodes need not mind it.
    seconds: float | None
    # The clock that could say went back: what the agent was told before, and counts itself, holds.
    has_jumped: bool = False


class RegionLease(Value):
    """What a renewal came to: a lease until then by the region's own clock, and the fence."""

    region: RegionId
    epoch: int
    is_fenced: bool
    # It is opened by itself, when nothing of others is left there.
    is_restored: bool = False
    # None if it was not extended.
    expires_at: AwareDatetime | None = None
    # By how much the region's clock had gone back: across that, nothing is renewed.
    went_back_seconds: float | None = None


class Fence(Value):
    """A region that was fenced, and from when on its slots may go elsewhere."""

    region: RegionId
    epoch: int
    # Its own database answered and obeys. Its claims are then released one by one, by evidence.
    is_in_region: bool
    # When its slots may be handed over without it, by the global side's clock; None: only when its
    # database answers, since it never lived on a lease that could be waited out.
    movable_at: AwareDatetime | None


class FencedClaims(Value):
    """What was released of a fenced region, and what still waits for evidence."""

    released: int
    waiting: int
    # Whose claims were released: they may go on elsewhere.
    workloads: frozenset[tuple[TenantId, WorkloadName]] = frozenset()
    # When it is worth asking again, by the region's clock; None: when an agent reports.
    next_at: AwareDatetime | None = None
