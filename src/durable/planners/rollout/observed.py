"""What a plan is made from: what is wanted of a workload, and what was observed of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from durable.model.work.rollout import disruption_allowance, rounded_down, rounded_up
from durable.model.work.workload import WorkloadKind, WorkloadSpec


class ShareName(NamedTuple):
    """Which share: one region's of one generation."""

    generation: int
    region: str


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A slot's live claim."""

    share: ShareName
    # It serves; it has served for the minimum ready time; it was asked to stop.
    is_serving: bool = False
    is_available: bool = False
    is_stopping: bool = False
    # This very claim is to be replaced, such as by a drain.
    is_marked: bool = False


@dataclass(frozen=True)
class RolloutObservation:
    """The shares as they were published, and the replicas that exist."""

    shares: Mapping[ShareName, frozenset[int]] = field(
        default_factory=dict[ShareName, frozenset[int]]
    )
    replicas: Mapping[int, ObservedReplica] = field(default_factory=dict[int, ObservedReplica])
    # How many replicas voluntary stops must leave serving in each region, as it knows.
    floors: Mapping[str, int] = field(default_factory=dict[str, int])
    # Shares that have slots without a node, because there is no room or grant for them now.
    starved: frozenset[ShareName] = frozenset()
    # Regions that did not answer: nothing is known of them, and nothing can be published there.
    unreachable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Goal:
    """Every base slot runs this generation in its region; how much may be disturbed meanwhile."""

    generation: int
    homes: Mapping[int, str]
    # How many surge slots there may be, and how many replicas may be unavailable for this change.
    surge: int = 0
    unavailable: int = 0
    # How many may be down by choice for all causes together.
    allowance: int = 0
    # What slots run whose turn has not come; None if no generation was ever good.
    stable: int | None = None
    # The order in which regions take their turn; others follow by name.
    order: tuple[str, ...] = ()
    # Regions that have served for their bake time.
    baked: frozenset[str] = frozenset()
    # No more slots than this pass to the generation; None for all.
    most_replaced: int | None = None
    is_paused: bool = False
    # In every region at once, without a pause: to roll back a change, or for a gang or a job.
    at_once: bool = False
    # A gang or a job of another generation: all of it is stopped, and started again together.
    recreates: bool = False
    # Slots that a lost region keeps until it is back: stand-ins serve for them.
    kept: frozenset[int] = frozenset()


class Fenceposts(NamedTuple):
    """What may be added and what may be missing while replicas are replaced."""

    surge: int
    unavailable: int
    allowance: int


def fenceposts(spec: WorkloadSpec) -> Fenceposts:
    """The arithmetic of Kubernetes' Deployment, within the workload's disruption allowance.

    Surge is rounded up and unavailable down; if nothing could move, one replica may be missing, or
    where the allowance forbids that, one may be added. Of a job nothing is added, and all may be
    missing: it serves nothing.
    """
    replicas = spec.replicas
    if spec.kind is WorkloadKind.JOB:
        return Fenceposts(0, replicas, replicas)
    allowance = disruption_allowance(spec.disruption, spec.priority, replicas)
    surge = rounded_up(spec.rollout.max_surge, replicas)
    unavailable = rounded_down(spec.rollout.max_unavailable, replicas)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    unavailable = min(unavailable, allowance)
    if surge == 0 and unavailable == 0:
        surge = 1
    return Fenceposts(surge, unavailable, allowance)


def restarts_together(spec: WorkloadSpec, generation: int, present: Iterable[int]) -> bool:
    """Whether all of it has to stop before it is started again: a gang or a job that changes.

    One that stays what it is loses single members, to a drain or a node, and gets each back alone.
    """
    is_whole = spec.is_gang or spec.kind is WorkloadKind.JOB
    return is_whole and any(one != generation for one in present)
