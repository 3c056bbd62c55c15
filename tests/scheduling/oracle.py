"""The same rules in plain loops, written apart from the decision: what it must be true to."""

from collections import Counter

from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.region import NodeFacts
from tests.scheduling.world import EPOCH, NOTHING, NOW, REGION, TENANT, Region


def may_ever(facts: NodeFacts, asked: PlacementRequest) -> bool:
    """Whether nothing lasting speaks against the node."""
    wants, spec = asked.spec.requirements, asked.spec
    for key, value in wants.labels.items():
        if facts.labels.get(key) != value:
            return False
    for mark in facts.taints:
        if mark["effect"] == "no-schedule" and not any(
            toleration.key == mark["key"]
            and (toleration.value is None or toleration.value == mark["value"])
            and (toleration.effect is None or toleration.effect == mark["effect"])
            for toleration in spec.tolerations
        ):
            return False
    return (
        (not wants.regions or REGION in wants.regions)
        and (not wants.zones or facts.zone in wants.zones)
        and (facts.dedicated_to == TENANT or (facts.dedicated_to is None and not wants.dedicated))
        and fits(spec.resources.amounts, facts.capacity)
    )


def may_now(facts: NodeFacts, asked: PlacementRequest) -> bool:
    """Whether the node is one over which the replicas are to be spread."""
    return (
        may_ever(facts, asked)
        and all(one.effects.allows(facts.zone, facts.node) for one in asked.overrides)
        and facts.ready
        and not facts.cordoned
        and facts.lease_epoch == EPOCH
        and facts.lease_expires_at is not None
        and facts.lease_expires_at > NOW
    )


def fits(amounts: tuple[int, ...], into: tuple[int, ...]) -> bool:
    return all(amount <= have for amount, have in zip(amounts, into, strict=True))


class State:
    """A region with some of the slots placed."""

    def __init__(self, world: Region, asked: PlacementRequest, placed: dict[int, str]) -> None:
        self.asked = asked
        self.nodes = {facts.node: facts for facts in world.nodes}
        self.new = Counter(placed.values())
        self.on_node = self.new + Counter(
            str(placed.node) for placed in asked.live if placed.node in self.nodes
        )
        self.in_zone: Counter[str] = Counter()
        for name, count in self.on_node.items():
            self.in_zone[self.nodes[name].zone] += count
        self.eligible = [facts for facts in world.nodes if may_now(facts, asked)]
        zones = {facts.zone for facts in self.eligible}
        self.emptiest_zone = min((self.in_zone[zone] for zone in zones), default=0)
        self.emptiest_node = min((self.on_node[facts.node] for facts in self.eligible), default=0)

    def free(self, facts: NodeFacts) -> tuple[int, ...]:
        asked, new = self.asked.spec.resources.amounts, self.new[facts.node]
        unusable = (0, 0, facts.unhealthy_gpus)
        amounts = zip(facts.capacity, facts.used, unusable, asked, strict=True)
        return tuple(have - used - lost - new * each for have, used, lost, each in amounts)

    def takes(self, facts: NodeFacts, slot: int) -> bool:
        """Whether one more, for this slot, breaks nothing."""
        spread, here = self.asked.spec.spread, self.on_node[facts.node] + 1
        crashed = {(crash.slot, str(crash.node)) for crash in self.asked.crashes}
        in_zone = self.in_zone[facts.zone] + 1
        return (
            facts in self.eligible
            and fits(self.asked.spec.resources.amounts, self.free(facts))
            and (spread.max_per_node is None or here <= spread.max_per_node)
            and (slot, facts.node) not in crashed
            and (
                spread.zone_max_skew is None or in_zone - self.emptiest_zone <= spread.zone_max_skew
            )
            and (spread.node_max_skew is None or here - self.emptiest_node <= spread.node_max_skew)
        )

    def broken(self, placed: dict[int, str]) -> list[str]:
        """What the placed slots have broken; the order in which they were placed is not known.

        A zone that got a replica was within its skew then, and the emptiest only rises.
        """
        spread, wrong = self.asked.spec.spread, list[str]()
        crashed = {(crash.slot, str(crash.node)) for crash in self.asked.crashes}
        for slot, name in placed.items():
            facts = self.nodes[name]
            in_zone, here = self.in_zone[facts.zone], self.on_node[name]
            checks = {
                "eligible": facts in self.eligible,
                "capacity": fits(NOTHING, self.free(facts)),
                "crash": (slot, name) not in crashed,
                "max_per_node": spread.max_per_node is None or here <= spread.max_per_node,
                "zone": spread.zone_max_skew is None
                or in_zone - self.emptiest_zone <= spread.zone_max_skew,
                "node": spread.node_max_skew is None
                or here - self.emptiest_node <= spread.node_max_skew,
            }
            wrong += [f"{rule} of {name}" for rule, holds in checks.items() if not holds]
        return wrong


def complete_assignment(world: Region, asked: PlacementRequest) -> dict[int, str] | None:
    """A node for every slot that breaks no rule, found by trying all of them; None if none does."""
    eligible = [facts for facts in world.nodes if may_now(facts, asked)]
    crashed = {(crash.slot, str(crash.node)) for crash in asked.crashes}

    def extend(placed: dict[int, str], rest: list[int]) -> dict[int, str] | None:
        if not rest:
            return None if State(world, asked, placed).broken(placed) else placed
        slot, *others = rest
        state = State(world, asked, placed)
        for facts in eligible:
            may = (slot, facts.node) not in crashed
            if may and fits(asked.spec.resources.amounts, state.free(facts)):
                found = extend({**placed, slot: facts.node}, others)
                if found is not None:
                    return found
        return None

    return extend({}, list(asked.slots))


def slots_let_through(world: Region, asked: PlacementRequest) -> int:
    """How many slots grant and room cover, counted one by one."""
    count = 0
    while count < len(asked.slots):
        total = tuple((count + 1) * each for each in asked.spec.resources.amounts)
        in_use = tuple(used + each for used, each in zip(world.in_use, total, strict=True))
        if world.grant is None or not _within(in_use, world.grant, total):
            break
        if asked.draw is None and not _within(total, world.room, total):
            break
        count += 1
    return count


def _within(amounts: tuple[int, ...], limit: tuple[int, ...], asked: tuple[int, ...]) -> bool:
    """Within the limit in every dimension that is asked for at all."""
    triples = zip(amounts, limit, asked, strict=True)
    return all(amount <= most for amount, most, each in triples if each)
