"""A workload in plain memory: placements that obey their shares and floors, and a plan for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from durable.planners.rollout.observed import Goal, ObservedReplica, RolloutObservation, ShareName
from durable.planners.rollout.planner import RolloutPlan, plan_shares

EAST, WEST = "us-east", "us-west"
OLD, NEW = 1, 2


def homes(**counts: int) -> dict[int, str]:
    """Base slots in turn over regions: `homes(us_east=2, us_west=1)`."""
    slots = [name.replace("_", "-") for name, count in counts.items() for _ in range(count)]
    return dict(enumerate(slots))


def serving(generation: int, region: str, **more: bool) -> ObservedReplica:
    fields = {"is_serving": True, "is_available": True, **more}
    return ObservedReplica(ShareName(generation, region), **fields)


@dataclass
class World:
    """What the authority would say, changed by one event at a time."""

    shares: dict[ShareName, frozenset[int]] = field(default_factory=dict[ShareName, frozenset[int]])
    replicas: dict[int, ObservedReplica] = field(default_factory=dict[int, ObservedReplica])
    floors: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def settled(cls, generation: int, slots: Mapping[int, str]) -> "World":
        """Every slot serves this generation where it belongs."""
        world = cls()
        for slot, region in slots.items():
            share = ShareName(generation, region)
            world.shares[share] = world.shares.get(share, frozenset()) | {slot}
            world.replicas[slot] = serving(generation, region)
        return world

    def observed(self) -> RolloutObservation:
        return RolloutObservation(dict(self.shares), dict(self.replicas), dict(self.floors))

    def plan(self, goal: Goal) -> RolloutPlan:
        """Makes the next plan and publishes it."""
        plan = plan_shares(goal, self.observed())
        self.floors.update(plan.floors)
        for share, slots in plan.shares.items():
            self.shares[share] = frozenset(slots)
        for share in plan.closing:
            assert not self.shares[share], "a share that is closed has nothing left"
            self.shares.pop(share)
        return plan

    @property
    def available(self) -> int:
        return sum(one.is_available and not one.is_stopping for one in self.replicas.values())

    def serving_in(self, region: str) -> int:
        return sum(
            one.is_serving and not one.is_stopping and one.share.region == region
            for one in self.replicas.values()
        )

    def events(self) -> list[Callable[[], None]]:
        """What could happen next: each is one step of one placement or one node."""
        found: list[Callable[[], None]] = []
        assigned = {slot: share for share, slots in self.shares.items() for slot in slots}
        for slot, one in self.replicas.items():
            if one.is_stopping:
                found.append(lambda slot=slot: self._end(slot))
            elif assigned.get(slot) != one.share:
                if not one.is_serving or self.may_stop(one.share.region):
                    found.append(lambda slot=slot: self._set(slot, is_stopping=True))
            elif not one.is_serving:
                found.append(lambda slot=slot: self._set(slot, is_serving=True))
            elif not one.is_available:
                found.append(lambda slot=slot: self._set(slot, is_available=True))
        for slot, share in assigned.items():
            if slot not in self.replicas:
                found.append(lambda slot=slot, share=share: self._begin(slot, share))
        return found

    def may_stop(self, region: str) -> bool:
        """The regional commit's rule."""
        return self.serving_in(region) - 1 >= self.floors.get(region, 0)

    def _begin(self, slot: int, share: ShareName) -> None:
        assert slot not in self.replicas, "a slot has one claim"
        self.replicas[slot] = ObservedReplica(share)

    def _set(self, slot: int, **fields: bool) -> None:
        self.replicas[slot] = replace(self.replicas[slot], **fields)

    def _end(self, slot: int) -> None:
        del self.replicas[slot]
