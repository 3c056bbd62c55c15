"""Where the slots of a lost region could go: room, grant and recovery budgets of the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.budgets import list_budgets
from durable.authority.quota.quotas import read_quota
from durable.authority.reads.room import read_room
from durable.authority.recovery.moves import Divide, Shares
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import RowKey
from durable.model.fleet.capacity import Quota
from durable.model.ids import IncidentId, RegionId, TenantId
from durable.model.recovery.recoveries import WorkloadMove
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import NOTHING, Amounts, minus, plus, times
from durable.model.states import RegionState
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest
from durable.planners.recovery.moves import draws_on_budgets
from durable.planners.rollout.observed import fenceposts
from durable.scheduling.regions.room import RegionOffer, RegionRoom, RegionStanding, offers
from durable.scheduling.regions.split import CurrentShares, split
from durable.scheduling.snapshot.region import Snapshot

# Everything at once; a region that was never read is known by its name alone.
Rooms = dict[RegionId, RegionRoom]


@dataclass
class Refuge:
    """The regions as they are now, for a few workloads that move together."""

    rooms: Rooms
    # Fenced or suspected: they take nothing. What they have is their own recovery's to move.
    closed: frozenset[RegionId]
    quotas: Mapping[TenantId, Quota]
    # By workload, the slots of jobs that are done: they run nowhere again.
    done: Mapping[RowKey, frozenset[int]]
    # By workload, the slots whose originals are in the lost region still, and need no room there.
    kept: Mapping[RowKey, frozenset[int]] = field(default_factory=dict[RowKey, frozenset[int]])

    def out_of(self, region: RegionId) -> Divide:
        """New shares without the region; what others have stays where it is."""

        def divide(workload: AdmittedWorkload) -> Shares:
            done = self.done.get((str(workload.tenant), str(workload.workload)), frozenset[int]())
            stays = tuple(slot for slot in workload.share.get(region, ()) if slot in done)
            current = CurrentShares(
                {str(one): slots for one, slots in workload.share.items() if one != region},
                lost=frozenset({str(region)}),
                closed=frozenset(map(str, self.closed)),
            )
            divided = split(workload.spec, self._offers(workload), current)
            kept = set(stays)
            share = {
                RegionId(one): tuple(slot for slot in slots if slot not in kept)
                for one, slots in divided.items()
            }
            self._promise(workload, share)
            share[region] = stays
            return {one: slots for one, slots in share.items() if slots}

        return divide

    def back_to(self, region: RegionId, moved: Iterable[int]) -> Divide:
        """The slots that were moved out go back; refused while the region lacks room for them."""

        def divide(workload: AdmittedWorkload) -> Shares:
            spec = workload.spec
            named = spec.requirements.regions
            is_allowed = (not named or region in named) and spec.weights.get(region, 1) > 0
            wanted = [slot for slot in sorted(moved) if slot < spec.replicas] if is_allowed else []
            home = set(workload.share.get(region, ()))
            going = {slot for slot in wanted if slot not in home}
            coming = going - self._kept(workload)
            self._refuse_without_room(workload, region, len(coming))
            share = {
                one: tuple(slot for slot in slots if slot not in going)
                for one, slots in workload.share.items()
            }
            share[region] = tuple(sorted({*home, *going}))
            self._promise(workload, {region: tuple({*home, *coming})})
            return {one: slots for one, slots in share.items() if slots}

        return divide

    def _refuse_without_room(
        self, workload: AdmittedWorkload, region: RegionId, coming: int
    ) -> None:
        """Step by step each replica leaves its grant to the next; the first one needs some."""
        at_once = self._offer(workload, region)
        # A gang goes as a whole.
        in_steps = self._offer(workload, region, leaving=0 if workload.spec.is_gang else coming)
        can_begin = at_once.fits > 0 or fenceposts(workload.spec).unavailable > 0
        if in_steps.fits >= coming and (can_begin or not coming):
            return
        by_grant = in_steps.standing in (RegionStanding.NO_GRANT, RegionStanding.NO_GRANT_LEFT)
        if by_grant or in_steps.fits >= coming:
            raise RefusedError(
                RefusalCode.GRANT_EXHAUSTED,
                f"The grant of {workload.tenant} has room for {at_once.fits} more replicas, which "
                f"the {coming} that go back to {region} cannot begin with; raise the hard quota or "
                "allow some to be unavailable.",
            )
        raise RefusedError(
            RefusalCode.NODE_FULL,
            f"{region} has room for {in_steps.fits} of the {coming} replicas that go back.",
        )

    def _offer(
        self, workload: AdmittedWorkload, region: RegionId, *, leaving: int = 0
    ) -> RegionOffer:
        return next(one for one in self._offers(workload, leaving) if one.region == region)

    def _kept(self, workload: AdmittedWorkload) -> frozenset[int]:
        return self.kept.get((str(workload.tenant), str(workload.workload)), frozenset())

    def _offers(self, workload: AdmittedWorkload, leaving: int = 0) -> list[RegionOffer]:
        """With the grant of so many replicas that leave other regions meanwhile."""
        quota = self.quotas[workload.tenant]
        left = times(workload.spec.resources.amounts, leaving)
        return offers(
            _manifest(workload),
            self.rooms,
            target=plus(quota.target.amounts, left),
            ungranted=plus(quota.target.excess_over(quota.granted).amounts, left),
        )

    def _promise(self, workload: AdmittedWorkload, share: Shares) -> None:
        """Lets the next workload find what this one will leave."""
        for region, slots in share.items():
            more = len(set(slots).difference(workload.share.get(region, ())))
            if more and region in self.rooms:
                most = min(more, workload.spec.most_at_once)
                room = self.rooms[region]
                self.rooms[region] = room.promise(workload.tenant, workload.spec.resources, most)


async def read_refuge(
    databases: Databases,
    moves: Iterable[WorkloadMove],
    *,
    region: RegionId,
    incident: IncidentId | None,
) -> Refuge:
    """What there is for these workloads, with nothing to take in regions that are not open.

    With an incident, what is kept for it counts as room.
    """
    chosen = list(moves)
    facts = await read_facts(databases)
    closed = frozenset(one for one, fact in facts.items() if fact.state is not RegionState.OPEN)
    regions = await list_regions(databases)
    answers = await ask_regions(regions, lambda one: read_room(databases, one))
    rooms: Rooms = {
        one: replace(RegionRoom(Snapshot.empty(one)), is_reachable=False)
        for one in answers.unreachable
    }
    for one, room in answers.by_region.items():
        rooms[one] = _without_use(room) if one in facts and facts[one].is_fenced else room
    if incident is not None and any(draws_on_budgets(move.priority) for move in chosen):
        await _count_budgets(databases, rooms, closed, incident)
    tenants = {move.tenant for move in chosen}
    quotas = {tenant: await read_quota(databases, tenant) for tenant in tenants}
    return Refuge(rooms, closed, quotas, {})


async def _count_budgets(
    databases: Databases, rooms: Rooms, closed: frozenset[RegionId], incident: IncidentId
) -> None:
    healthy = [one for one, room in rooms.items() if one not in closed and room.is_reachable]
    found = await ask_regions(healthy, lambda one: list_budgets(databases, one))
    for region, budgets in found.by_region.items():
        unused: Amounts = NOTHING
        for budget in budgets:
            if budget.incident == incident:
                unused = plus(unused, minus(budget.amount.amounts, budget.used.amounts))
        rooms[region].snapshot.room = plus(rooms[region].snapshot.room, unused)


def _without_use(room: RegionRoom) -> RegionRoom:
    """What leaves a lost region uses none of its grant there any more."""
    room.snapshot.grants = {
        tenant: (granted, NOTHING) for tenant, (granted, _) in room.snapshot.grants.items()
    }
    return room


def _manifest(workload: AdmittedWorkload) -> WorkloadManifest:
    return WorkloadManifest(tenant=workload.tenant, name=workload.workload, spec=workload.spec)
