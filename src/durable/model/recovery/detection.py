"""What is seen of a region from outside, what it is taken for, and when a recovery begins."""

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import ActorId, NodeId, RegionId, ZoneId
from durable.model.recovery.recoveries import RecoveryKey
from durable.validation.text import show_moment
from durable.validation.value import Value

Percent = Annotated[float, Field(gt=0, le=100)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Mode(StrEnum):
    """Whether something goes on by itself, or waits for a person."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class RecoveryPolicy(Value):
    """When a region counts as lost, how fast its work moves, and what must be reached."""

    # From which part of its nodes without a live lease a zone, or the region, counts as lost.
    zone_lost_percent: Percent = 80.0
    region_lost_percent: Percent = 80.0
    # Nodes count that had a lease within this: what fell silent long before says nothing new.
    together_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    # How long the signs of a loss must last. One agent that hosts most of a region's nodes may
    # only be restarting, and a database that does not answer may come back with its work untouched.
    grace_seconds: Seconds = 10.0
    lone_host_grace_seconds: Seconds = 15.0
    database_grace_seconds: Seconds = 30.0
    # Every agent is silent while the region's database, worker and lease are well: it may be the
    # agents that are being replaced.
    agents_grace_seconds: Seconds = 30.0
    # How long a region must look well before its suspicion is dropped: one that comes and goes
    # is the same loss.
    calm_seconds: Seconds = 10.0
    # A worker whose view of its region is older than this has lost its watch.
    watch_seconds: Annotated[float, Field(gt=0, le=86_400)] = 90.0
    # Whether a detected loss is confirmed by itself, and whether work goes back by itself.
    confirmation: Mode = Mode.AUTOMATIC
    failback: Mode = Mode.MANUAL
    # How many workloads move at the same time, and how many begin to in a second.
    moves_at_once: Annotated[int, Field(ge=1, le=1_000)] = 16
    moves_per_second: Annotated[float, Field(gt=0, le=1_000)] = 50.0
    # Work from this priority on is critical: so many replicas must serve within this time.
    critical_priority: Annotated[int, Field(ge=0, le=1_000)] = 900
    objective_replicas: Annotated[int, Field(ge=1, le=10_000)] = 4
    objective_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0


class LossKind(StrEnum):
    """What a region's signs are taken for."""

    HEALTHY = "healthy"
    NODE = "node lost"
    ZONE = "zone lost"
    WATCH = "watch blind"
    WORKER = "worker lost"
    DATABASE = "database lost"
    REGION = "region lost"
    # The observer cannot see: what it does not see says nothing about the region.
    OBSERVER = "observer blind"
    # Somebody said that its nodes would fall silent for a while.
    MAINTENANCE = "maintenance"
    # Nothing that could be lost has ever been seen: that is not the same as healthy.
    NO_NODES = "no nodes"


# Only these make a region suspected.
SUSPECTED = frozenset({LossKind.DATABASE, LossKind.REGION})


class RegionMaintenance(Value):
    """An operator's mark: until then, nothing that is seen of the region is taken for its loss."""

    since: AwareDatetime
    until: AwareDatetime
    reason: str
    actor: ActorId

    def __str__(self) -> str:
        return f"until {show_moment(self.until)} by {self.actor}: {self.reason}"


class ZoneSigns(Value):
    """Of the nodes of a zone that had a lease lately: how many still do."""

    zone: ZoneId
    live: Annotated[int, Field(ge=0)] = 0
    lapsed: Annotated[int, Field(ge=0)] = 0

    @property
    def nodes(self) -> int:
        return self.live + self.lapsed


class RegionSigns(Value):
    """What was seen of one region at one moment; `None` is what could not be found out."""

    region: RegionId
    epoch: int = 1
    is_fenced: bool = False
    # Of the region's own database; without an answer nothing is known of nodes.
    database_answers: bool = True
    zones: tuple[ZoneSigns, ...] = ()
    silent_nodes: tuple[NodeId, ...] = Field(default=(), max_length=20)
    # Agents that host those nodes, and those of them that renew no lease any more.
    hosts: Annotated[int, Field(ge=0)] = 0
    silent_hosts: Annotated[int, Field(ge=0)] = 0
    # How long ago one of those that are silent was last heard of.
    silent_seconds: float | None = None
    # How long ago the region last showed the global side that it lives.
    last_sign_seconds: float | None = None
    # The region's worker: whether it asks Temporal for work, renews the region's lease at the
    # global side, and how old its view of the region is.
    worker_polls: bool | None = None
    lease_lapsed_seconds: float | None = None
    watch_age_seconds: float | None = None
    # The mark that is in force.
    maintenance: RegionMaintenance | None = None

    @property
    def nodes(self) -> int:
        return sum(zone.nodes for zone in self.zones)

    @property
    def live(self) -> int:
        return sum(zone.live for zone in self.zones)

    @property
    def has_lease(self) -> bool:
        return self.lease_lapsed_seconds is not None and self.lease_lapsed_seconds <= 0


class LossVerdict(Value):
    """What one region's signs are taken for, in a sentence, with the signs as evidence."""

    region: RegionId
    kind: LossKind
    sentence: str
    zones: tuple[ZoneId, ...] = ()
    signs: RegionSigns

    @property
    def is_suspected(self) -> bool:
        return self.kind in SUSPECTED


class RegionCondition(Value):
    """What a region is taken for, as people read it, and since when."""

    kind: LossKind
    sentence: str
    since: AwareDatetime


class Suspicion(Value):
    """A loss that seems to be under way, since when, and since when it looks over again."""

    region: RegionId
    epoch: int
    since: AwareDatetime
    # The last moment at which the region was known to be well, before its first sign of a loss.
    lost_at: AwareDatetime
    verdict: LossVerdict
    calm_since: AwareDatetime | None = None

    @property
    def recovery(self) -> RecoveryKey:
        """The recovery of this loss."""
        return RecoveryKey(region=self.region, epoch=self.epoch + 1)
