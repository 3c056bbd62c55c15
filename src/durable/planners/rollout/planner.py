"""The next shares of a workload: rollout, replacement, drain and moves between regions are this.

Every base slot, 0 to N-1, is to run one generation in one region. One that runs something else, or
whose claim is marked, is outdated. Surge slots, N and above, are scaffolding: they come up
first; outdated slots leave their share within what may be unavailable, and once their claim has
ended they are given to the share that they belong to; the scaffolding comes down when every base
slot is available. The plan is made again from what is observed after every change, so it does not
matter what was missed, or who died in the middle of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from durable.model.ids import RegionId
from durable.model.work.rollout import RolloutProgress, RolloutStep
from durable.planners.rollout.floors import divide_floors, shortfall
from durable.planners.rollout.observed import Goal, RolloutObservation, ShareName
from durable.planners.rollout.stand_ins import shares_with_kept, with_stand_ins, without_kept


@dataclass(frozen=True)
class RolloutPlan:
    """What to publish now; regions that did not answer are left out."""

    shares: Mapping[ShareName, tuple[int, ...]]
    # Shares of older generations that are not needed any more.
    closing: frozenset[ShareName]
    # How many replicas voluntary stops must leave serving in each region.
    floors: Mapping[str, int]
    # Which region is to own each slot for now; the owner of one that is kept does not change.
    owners: Mapping[int, str]
    progress: RolloutProgress
    # Regions in which every base slot is replaced and available.
    done_regions: frozenset[str]
    # Whether every base slot is replaced and available, whatever else is left to do.
    is_replaced: bool
    # Whether nothing is left to do.
    is_complete: bool
    # Slots that leave their share for nothing but a mark on their claim.
    replaced: frozenset[int] = frozenset()


def plan_shares(goal: Goal, observed: RolloutObservation) -> RolloutPlan:
    """The next step from what is observed towards the goal."""
    if not goal.kept:
        return _Planner(goal, observed).plan()
    plan = _Planner(with_stand_ins(goal), without_kept(goal, observed)).plan()
    return replace(plan, shares=shares_with_kept(goal, observed, plan.shares))


class _Planner:
    def __init__(self, goal: Goal, observed: RolloutObservation) -> None:
        self._goal, self._observed = goal, observed
        self._replicas = observed.replicas
        # Where each slot is assigned now; one in two shares is where its claim is.
        self._assigned: dict[int, ShareName] = {}
        for share in sorted(observed.shares):
            for slot in observed.shares[share]:
                replica = self._replicas.get(slot)
                if slot not in self._assigned or (replica and replica.share == share):
                    self._assigned[slot] = share
        # In no share any more, and not asked to stop yet, perhaps because too few others serve:
        # whether it leaves is decided again.
        self._loose = {
            slot
            for slot, replica in self._replicas.items()
            if slot not in self._assigned and not replica.is_stopping
        }
        self._assigned |= {slot: self._replicas[slot].share for slot in self._loose}
        self._wants = {slot: self._wanted(slot) for slot in sorted(goal.homes)}

    # ── what belongs where ──────────────────────────────────────────────────────────────────────

    @cached_property
    def _order(self) -> list[str]:
        """The regions in their turn; those that do not answer come last."""
        regions = set(self._goal.homes.values())
        named = [region for region in self._goal.order if region in regions]
        order = [*named, *sorted(regions.difference(named))]
        return sorted(order, key=lambda region: region in self._observed.unreachable)

    @cached_property
    def _done(self) -> frozenset[str]:
        """Regions in which every base slot runs the wanted generation and is available."""
        missing = {
            region
            for slot, region in self._goal.homes.items()
            if self._assigned.get(slot) != (self._goal.generation, region)
            or not self._is_available(slot)
        }
        return frozenset(self._order) - missing

    @cached_property
    def _reached(self) -> frozenset[str]:
        """Regions whose turn has come: those that are done and baked, and the one after them."""
        reached: list[str] = []
        for region in self._order:
            reached.append(region)
            if region not in self._done or region not in self._goal.baked:
                break
        return frozenset(self._order if self._goal.at_once else reached)

    @cached_property
    def _advanced(self) -> frozenset[int]:
        """Slots that may run the wanted generation: the first ones, up to a pause point."""
        goal = self._goal
        there = {
            slot
            for slot in goal.homes
            if slot in self._assigned and self._assigned[slot].generation == goal.generation
        }
        most = len(there) if goal.is_paused else goal.most_replaced
        if goal.at_once or most is None:
            return frozenset(goal.homes)
        waiting = sorted(
            slot
            for slot, region in goal.homes.items()
            if slot not in there and region in self._reached
        )
        return frozenset({*there, *waiting[: max(0, most - len(there))]})

    def _wanted(self, slot: int) -> ShareName:
        """Where a base slot belongs now: its turn may not have come yet."""
        goal, region = self._goal, self._goal.homes[slot]
        if region in self._reached and slot in self._advanced:
            return ShareName(goal.generation, region)
        if slot in self._assigned:
            return ShareName(self._assigned[slot].generation, region)
        replica = self._replicas.get(slot)
        before = replica.share.generation if replica is not None else goal.stable
        return ShareName(goal.generation if before is None else before, region)

    def _is_available(self, slot: int) -> bool:
        replica = self._replicas.get(slot)
        return replica is not None and replica.is_available and not self._is_leaving(slot)

    def _is_leaving(self, slot: int) -> bool:
        replica = self._replicas.get(slot)
        return replica is not None and replica.is_stopping

    @cached_property
    def _outdated(self) -> list[int]:
        """Base slots that are assigned to what they must not run any more."""
        return [slot for slot in self._wants if self._is_outdated(slot)]

    def _is_outdated(self, slot: int) -> bool:
        share = self._assigned.get(slot)
        if share is None:
            return False
        return share != self._wants[slot] or self._is_marked(slot)

    @cached_property
    def _unsettled(self) -> list[int]:
        """Base slots that are not yet where they belong, or do not count yet."""
        outdated = set(self._outdated)
        return [
            slot
            for slot, share in self._wants.items()
            if slot in outdated or self._assigned.get(slot) != share or not self._is_available(slot)
        ]

    @cached_property
    def _awaited(self) -> list[int]:
        """Base slots whose turn has come and that are not replaced; a mark alone undoes nothing."""
        return [
            slot
            for slot, share in self._wants.items()
            if share.generation == self._goal.generation
            and share.region not in self._observed.unreachable
            and (self._assigned.get(slot) != share or not self._is_available(slot))
        ]

    # ── scaffolding ─────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _extras(self) -> list[int]:
        """Assigned slots beyond the base."""
        return sorted(slot for slot in self._assigned if slot not in self._goal.homes)

    @cached_property
    def _scaffolding(self) -> dict[int, ShareName]:
        """The surge slots that there must be: as many as are to be replaced, within the surge."""
        # What serves nothing is stopped at once, and needs no stand-in.
        serving = [slot for slot in self._outdated if not self._is_free_to_stop(slot)]
        demand = Counter(self._wants[slot] for slot in serving)
        useful = {self._wants[slot] for slot in self._unsettled}
        kept = {s: self._assigned[s] for s in self._extras if self._assigned[s] in useful}
        if not demand:
            # Where a base slot finds no room, it may be the scaffolding that takes it.
            return {} if self._is_starved else kept
        most = min(self._goal.surge, demand.total())
        scaffolding = dict(list(kept.items())[:most])
        used = {*self._assigned, *self._replicas}
        numbers = (number for number in count(len(self._goal.homes)) if number not in used)
        # What comes down elsewhere counts until it is gone.
        there = used.difference(self._goal.homes)
        more = self._spread(demand, scaffolding.values(), most - len(there))
        return scaffolding | dict(zip(numbers, more, strict=False))

    @property
    def _is_starved(self) -> bool:
        waiting = (self._wants[slot] for slot in self._unsettled if slot not in self._replicas)
        return not self._observed.starved.isdisjoint(waiting)

    def _spread(
        self, demand: Counter[ShareName], given: Iterable[ShareName], more: int
    ) -> list[ShareName]:
        """To which shares further surge slots go: first where most is to be replaced."""
        there = Counter(given)
        spread: list[ShareName] = []
        for _ in range(more):
            share = max(demand, key=lambda one: (demand[one] - there[one], one))
            there[share] += 1
            spread.append(share)
        return spread

    # ── stops ───────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _available(self) -> Counter[str]:
        """How many replicas are available in each region, surge slots included."""
        return Counter(
            replica.share.region
            for slot, replica in self._replicas.items()
            if self._is_available(slot)
        )

    @cached_property
    def _must_be_available(self) -> int:
        goal = self._goal
        return 0 if goal.recreates else max(0, len(goal.homes) - goal.unavailable)

    def _chosen_stops(self) -> set[int]:
        """Slots that leave their share now: what serves only within the budget."""
        dropped = [slot for slot in self._extras if slot not in self._scaffolding]
        outdated = sorted(self._outdated, key=lambda slot: not self._is_marked(slot))
        candidates = sorted([*dropped, *outdated], key=lambda slot: slot not in self._loose)
        stops = {slot for slot in candidates if self._is_free_to_stop(slot)}
        homes, left = self._homes_after(stops), self._left(stops)
        spare = self._available.total() - self._must_be_available
        for slot in candidates:
            if slot in stops:
                continue
            if spare <= 0:
                break
            before = homes.copy(), left.copy()
            self._move(slot, homes, left)
            if shortfall(self._answering(homes), left) > self._allowance:
                homes, left = before
                continue
            stops.add(slot)
            spare -= 1
        return stops

    def _is_marked(self, slot: int) -> bool:
        replica = self._replicas.get(slot)
        return replica is not None and replica.is_marked and not replica.is_stopping

    def _is_only_marked(self, slot: int) -> bool:
        """Whether it would stay where it is, if its replacement were not wanted."""
        return self._is_marked(slot) and self._assigned.get(slot) == self._wants.get(slot)

    def _is_free_to_stop(self, slot: int) -> bool:
        """Whether it serves nothing; what serves already may count at any moment."""
        if self._goal.recreates:
            return True
        replica = self._replicas.get(slot)
        return replica is None or not replica.is_serving or replica.is_stopping

    # ── floors ──────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _allowance(self) -> int:
        """What is left of the allowance beside the slots of regions that do not answer."""
        homes, unreachable = self._goal.homes.values(), self._observed.unreachable
        return max(0, self._goal.allowance - sum(region in unreachable for region in homes))

    def _homes_after(self, stops: Set[int]) -> Counter[str]:
        """How many base slots each region answers for: what leaves counts where it goes."""
        return Counter(
            region if slot in stops or slot not in self._assigned else self._assigned[slot].region
            for slot, region in self._goal.homes.items()
        )

    def _left(self, stops: Set[int]) -> Counter[str]:
        """How many available replicas these stops leave in each region."""
        left = self._available.copy()
        left.subtract(self._replicas[s].share.region for s in stops if self._is_available(s))
        return left

    def _move(self, slot: int, homes: Counter[str], left: Counter[str]) -> None:
        """What one more stop changes."""
        left[self._replicas[slot].share.region] -= self._is_available(slot)
        if slot in self._goal.homes:
            homes[self._assigned[slot].region] -= 1
            homes[self._goal.homes[slot]] += 1

    def _answering(self, counts: Mapping[str, int]) -> dict[str, int]:
        unreachable = self._observed.unreachable
        return {region: count for region, count in counts.items() if region not in unreachable}

    def _floors(self, stops: set[int]) -> dict[str, int]:
        known = self._answering(self._observed.floors)
        if self._goal.recreates:
            return dict.fromkeys({*known, *self._answering(self._homes_after(stops))}, 0)
        homes = self._answering(self._homes_after(stops))
        return divide_floors(homes, self._left(stops), known, self._allowance)

    def _stops_and_floors(self) -> tuple[set[int], dict[str, int]]:
        """The floors that the stops need; a stop waits while its region's may not come down yet."""
        stops = self._chosen_stops()
        floors = self._floors(stops)
        left = self._left(stops)
        for slot in sorted(stops, reverse=True):
            if not self._is_available(slot):
                continue
            region = self._replicas[slot].share.region
            if left[region] < floors.get(region, 0):
                stops.discard(slot)
                left[region] += 1
        return stops, floors

    # ── the plan ────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> RolloutPlan:
        stops, floors = self._stops_and_floors()
        slots = self._slots_after(stops)
        progress = self._progress(stops, slots)
        is_complete = progress.step is RolloutStep.DONE
        past = {
            share for share in self._observed.shares if share.generation != self._goal.generation
        }
        shares = dict.fromkeys(self._observed.shares, ()) | _by_share(slots)
        unreachable = self._observed.unreachable
        return RolloutPlan(
            shares={one: shares[one] for one in shares if one.region not in unreachable},
            closing=frozenset(past) if is_complete else frozenset(),
            floors=floors,
            owners=self._owners(slots),
            progress=progress,
            done_regions=self._done,
            is_replaced=self._done.issuperset(self._order),
            is_complete=is_complete,
            replaced=frozenset(slot for slot in stops if self._is_only_marked(slot)),
        )

    def _slots_after(self, stops: set[int]) -> dict[int, ShareName]:
        """Which share each slot is in: assigned ones stay, what has no claim goes where it belongs.

        A slot whose claim is elsewhere is in no share until that claim has ended; a gang begins
        again when the last claim has.
        """
        slots: dict[int, ShareName] = {}
        past = [s for s in self._replicas if s in stops or self._is_leaving(s)]
        waits_for_all = self._goal.recreates and bool(past)
        for slot, want in self._wants.items():
            if slot in self._assigned and slot not in stops:
                slots[slot] = self._assigned[slot]
            elif slot not in self._replicas and not waits_for_all:
                slots[slot] = want
        slots |= {slot: self._assigned[slot] for slot in self._extras if slot not in stops}
        return slots | {s: share for s, share in self._scaffolding.items() if s not in slots}

    def _owners(self, slots: Mapping[int, ShareName]) -> dict[int, str]:
        """The region of its claim, or of its share; one that has neither belongs to none."""
        owners = {slot: share.region for slot, share in slots.items()}
        return owners | {slot: one.share.region for slot, one in self._replicas.items()}

    def _progress(self, stops: set[int], slots: Mapping[int, ShareName]) -> RolloutProgress:
        goal = self._goal
        surge = [slot for slot in {*self._extras, *self._scaffolding} if slot not in stops]
        outdated = [slot for slot in self._outdated if slot not in stops]
        leaving = [s for s in goal.homes if s not in slots]
        replaced = [
            slot
            for slot, region in goal.homes.items()
            if self._assigned.get(slot) == (goal.generation, region)
            and self._is_available(slot)
            and slot not in stops
        ]
        # Their turn has not come yet: they too still run what has to go.
        later = [
            slot
            for slot, want in self._wants.items()
            if want.generation != goal.generation and slot in slots and slot not in outdated
        ]
        arriving = len(goal.homes) - len(replaced) - len(outdated) - len(later) - len(leaving)
        turn = [region for region in self._order if region in self._reached]
        is_in_turn = bool(turn) and len(self._order) > 1 and not goal.at_once
        return RolloutProgress(
            step=self._step(stops, outdated, leaving, surge),
            region=RegionId(turn[-1]) if is_in_turn else None,
            replaced=len(replaced),
            wanted=len(goal.homes),
            outdated=len(outdated) + len(later),
            leaving=len(leaving),
            arriving=max(0, arriving),
            awaited=len(self._awaited),
            surge=len(surge),
            surge_available=sum(map(self._is_available, surge)),
            surge_starved=sum(
                slots.get(slot) in self._observed.starved and slot not in self._replicas
                for slot in surge
            ),
            available=self._available.total(),
            must_be_available=self._must_be_available,
        )

    def _step(
        self, stops: set[int], outdated: list[int], leaving: list[int], surge: list[int]
    ) -> RolloutStep:
        goal = self._goal
        others = [s for s in self._replicas if s not in goal.homes or s in stops]
        is_behind = any(one.generation != goal.generation for one in self._wants.values())
        if not self._unsettled and not surge and not others:
            if not is_behind:
                return RolloutStep.DONE
            if goal.is_paused:
                return RolloutStep.PAUSED
            is_limited = len(self._advanced) < len(goal.homes)
            in_turn = {s for s, region in goal.homes.items() if region in self._reached}
            if is_limited and in_turn - self._advanced:
                return RolloutStep.PAUSE_POINT
            return RolloutStep.BAKING
        if goal.is_paused and is_behind:
            return RolloutStep.PAUSED
        if outdated and not stops and not leaving:
            coming = [slot for slot in surge if not self._is_available(slot)]
            if coming:
                return RolloutStep.SURGING
            arriving = [s for s in self._unsettled if s not in outdated]
            return RolloutStep.REPLACING if arriving else RolloutStep.BLOCKED
        return RolloutStep.REPLACING if outdated or leaving or stops else RolloutStep.SETTLING


def _by_share(slots: Mapping[int, ShareName]) -> dict[ShareName, tuple[int, ...]]:
    shares: dict[ShareName, list[int]] = {}
    for slot in sorted(slots):
        shares.setdefault(slots[slot], []).append(slot)
    return {share: tuple(numbers) for share, numbers in shares.items()}
