"""The hands of a recovery: moves out and back, releases, and how far all of it has come."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from durable.allocation.moves import read_refuge
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import ask_regions
from durable.authority.recovery.fence import lease_fenced
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.moves import (
    end_incident,
    list_affected,
    move_back,
    move_out,
    read_back_elsewhere,
)
from durable.authority.recovery.originals import read_kept, read_stand_ins
from durable.authority.recovery.recoveries import read_moves, record_measures, superseded_by
from durable.authority.recovery.region_facts import read_facts
from durable.authority.recovery.serving import ServingReplicas, read_done, read_serving
from durable.authority.workloads.rows import RowKey, read_workloads
from durable.failpoints import Failpoint, reach
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import Recovery, RecoveryKey, WorkloadMove
from durable.model.recovery.steps import SENTENCES_KEPT, Returns
from durable.model.states import RegionState
from durable.model.work.stand_ins import served_slot
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.planners.recovery.moves import (
    MovedReplicas,
    goes_back,
    is_measured_on,
    is_unheard,
    measure,
    next_moves,
    next_returns,
)
from durable.signals.names import RECOVERY_CONTROLLER, workload_id
from durable.signals.payloads import Look
from durable.signals.sending import SignalSender

ACTOR = RECOVERY_CONTROLLER
RELEASED_AT_ONCE = 2_000
HINTED_AT_ONCE = 100


class RecoveryMoves:
    """Moves work, and knows how far it has come."""

    def __init__(self, databases: Databases, sender: SignalSender) -> None:
        self._databases, self._sender = databases, sender

    # ── out of the region ───────────────────────────────────────────────────────────────────────

    async def move_out(
        self,
        recovery: Recovery,
        policy: RecoveryPolicy,
        now: datetime,
        *,
        with_refused: bool = False,
    ) -> list[WorkloadMove]:
        """Moves the next few, releases what that leaves behind, and answers how far all are."""
        await list_affected(self._databases, recovery.key)
        moves = await read_moves(self._databases, recovery.key)
        chosen = next_moves(moves, policy, now, with_refused=with_refused)
        if chosen:
            await self._move_out(recovery, chosen)
            reach(Failpoint.AFTER_MOVE_OUT)
        released = await self.release(recovery)
        unheard = [
            one.name for one in moves if _is_on_its_way(one) and is_unheard(one.moved_at, now)
        ]
        await self._have_look({*(one.name for one in chosen), *released, *unheard[:HINTED_AT_ONCE]})
        reach(Failpoint.AFTER_RELEASE_FENCED)
        return await self.measure(recovery, policy)

    async def _move_out(self, recovery: Recovery, chosen: Sequence[WorkloadMove]) -> None:
        region = recovery.region
        refuge = await read_refuge(
            self._databases, chosen, region=region, incident=recovery.key.incident
        )
        jobs = await self._jobs(chosen)
        answers = await ask_regions([region], lambda one: read_done(self._databases, one, jobs))
        # What a region that does not answer has done is not known.
        refuge.done = answers.by_region.get(region, {})
        divisions = {WorkloadMove.key_of(one): refuge.out_of(region) for one in chosen}
        await move_out(self._databases, recovery.key, chosen, divisions, actor=ACTOR)

    async def release(self, recovery: Recovery) -> frozenset[tuple[TenantId, WorkloadName]]:
        """Frees what the fence ended, where the region answers; answers whose it was.

        Where it does not, its lease is to lapse: its slots then go without it, by their numbers.
        """
        region, epoch = recovery.region, recovery.epoch
        try:
            done = await release_fenced(self._databases, region, epoch=epoch, most=RELEASED_AT_ONCE)
        except AuthorityError:
            await lease_fenced(self._databases, region, epoch, goes_on=False)
            return frozenset()
        await lease_fenced(self._databases, region, epoch, goes_on=True)
        return done.workloads

    async def measure(self, recovery: Recovery, policy: RecoveryPolicy) -> list[WorkloadMove]:
        """Reads how far everything is that is not whole yet, by the regions' own rows."""
        moves = await read_moves(self._databases, recovery.key)
        open_moves = [one for one in moves if is_measured_on(one, policy)]
        if not open_moves:
            return moves
        found = await self._read_healthy(open_moves)
        measured = {
            one.name: measure(one, found[WorkloadMove.key_of(one)], policy, recovery.lost_at)
            for one in open_moves
        }
        changed = [one for one in measured.values() if one not in moves]
        await record_measures(self._databases, recovery.key, changed)
        return [measured.get(one.name, one) for one in moves]

    async def _read_healthy(self, moves: Sequence[WorkloadMove]) -> dict[RowKey, MovedReplicas]:
        """What regions that are neither lost nor suspected know of these workloads."""
        keys = [WorkloadMove.key_of(one) for one in moves]
        jobs = await self._jobs(one for one in moves if one.moved_at is not None)
        facts = await read_facts(self._databases)
        healthy = [fact for fact in facts.values() if fact.state is RegionState.OPEN]
        answers = await ask_regions(
            [fact.region for fact in healthy],
            lambda one: read_serving(self._databases, one, keys, facts[one].read_at),
        )
        ends = await ask_regions(
            answers.by_region if jobs else (), lambda one: read_done(self._databases, one, jobs)
        )
        done: dict[RowKey, frozenset[int]] = {}
        for found in ends.by_region.values():
            for key, slots in found.items():
                done[key] = done.get(key, frozenset()) | slots
        together: dict[RowKey, ServingReplicas] = defaultdict(ServingReplicas)
        for found in answers.by_region.values():
            for key, replicas in found.items():
                one = together[key]
                one.serving_since |= {
                    served_slot(slot): since for slot, since in replicas.serving_since.items()
                }
                one.placed |= set(map(served_slot, replicas.placed))
                one.waits = one.waits or replicas.waits
        return {
            key: MovedReplicas(
                one.serving_since, frozenset(one.placed), done.get(key, frozenset()), one.waits
            )
            for key in keys
            for one in (together[key],)
        }

    # ── back, and the end ───────────────────────────────────────────────────────────────────────

    async def move_back(self, recovery: Recovery, policy: RecoveryPolicy, now: datetime) -> Returns:
        """Gives the region what came from it, a few at a time; answers what is not there yet.

        Also what an earlier loss had moved, before whose end the region was lost again.
        """
        back = Returns()
        for key in await self._losses(recovery):
            back += await self._move_back(recovery, key, policy, now)
        return back

    async def _move_back(
        self, recovery: Recovery, key: RecoveryKey, policy: RecoveryPolicy, now: datetime
    ) -> Returns:
        moves = await read_moves(self._databases, key)
        chosen = next_returns(moves, policy, now)
        elsewhere = await read_back_elsewhere(self._databases, key)
        if chosen:
            region = recovery.region
            refuge = await read_refuge(self._databases, chosen, region=region, incident=None)
            names = [WorkloadMove.key_of(one) for one in chosen]
            refuge.kept = await read_kept(self._databases, region, names)
            divisions = {
                name: refuge.back_to(region, set(one.slots) - elsewhere.get(name, frozenset()))
                for name, one in zip(names, chosen, strict=True)
            }
            await move_back(self._databases, key, chosen, divisions, to=recovery.key, actor=ACTOR)
            reach(Failpoint.AFTER_MOVE_BACK)
        waiting = list(filter(goes_back, moves))
        returned = [
            one
            for one in moves
            # What an earlier loss had brought back before this one is its own concern.
            if one.returned_at is not None and one.returned_at >= recovery.started_at
        ]
        workloads = await self._workloads(returned)
        away = await self._not_home(recovery.region, returned, workloads)
        strayed = strays(recovery.region, returned, workloads, elsewhere)
        unheard = [
            one.name for one in moves if one.name in away and is_unheard(one.returned_at, now)
        ]
        await self._have_look({*(one.name for one in chosen), *unheard[:HINTED_AT_ONCE]})
        left = [
            *(
                f"{one.tenant}/{one.workload} has not gone back. {one.waits}".strip()
                for one in waiting
            ),
            *away.values(),
        ]
        return Returns(
            count=len(left),
            left=tuple(left[:SENTENCES_KEPT]),
            strays=len(strayed),
            strayed=tuple(strayed[:SENTENCES_KEPT]),
            last_at=max((one.returned_at for one in moves if one.returned_at), default=None),
        )

    async def _losses(self, recovery: Recovery) -> list[RecoveryKey]:
        """This one, after those before whose end the region was lost again."""
        return [*await superseded_by(self._databases, recovery.key), recovery.key]

    async def _all_moves(self, recovery: Recovery) -> list[WorkloadMove]:
        """What has been moved out of the region and is its recovery's to give back."""
        return [
            one
            for key in await self._losses(recovery)
            for one in await read_moves(self._databases, key)
        ]

    async def keeps_originals(self, recovery: Recovery) -> bool:
        """Whether the region runs something under its old claim that is to serve there again."""
        moves = await self._all_moves(recovery)
        names = {WorkloadMove.key_of(one) for one in moves if one.returned_at is None}
        return bool(await read_kept(self._databases, recovery.region, names))

    async def hint_at_stand_ins(self, recovery: Recovery) -> None:
        """Has workloads look whose originals are kept no longer."""
        moves = await self._all_moves(recovery)
        found = await read_stand_ins(self._databases, list(map(WorkloadMove.key_of, moves)))
        await self._have_look(one.name for one in moves if WorkloadMove.key_of(one) in found)

    async def _not_home(
        self,
        region: RegionId,
        returned: Sequence[WorkloadMove],
        workloads: Sequence[AdmittedWorkload],
    ) -> dict[tuple[TenantId, WorkloadName], str]:
        """Of those that were given back, the ones that are not as they were yet, in sentences."""
        keys = [WorkloadMove.key_of(one) for one in returned]
        now = await read_time(self._databases)
        serving = await read_serving(self._databases, region, keys, now)
        stand_ins = await read_stand_ins(self._databases, keys)
        left: dict[tuple[TenantId, WorkloadName], str] = {}
        for workload in workloads:
            key = (str(workload.tenant), str(workload.workload))
            wanted = set(workload.share.get(region, ()))
            there = serving.get(key, ServingReplicas())
            missing = len(wanted.difference(there.serving_since))
            doubled = len(wanted.intersection(stand_ins.get(key, ())))
            if missing and not workload.deleted:
                why = f": {there.waits}" if there.waits else ""
                lacks = f"{'/'.join(key)} lacks {missing} replicas in {region}{why}"
                left[workload.tenant, workload.workload] = lacks
            elif doubled and not workload.deleted:
                has = f"{'/'.join(key)} has {doubled} stand-ins elsewhere, which are to stop"
                left[workload.tenant, workload.workload] = has
        return left

    async def end_incident(self, recovery: Recovery) -> None:
        """What it moved is ordinary work from here on."""
        ended = await end_incident(self._databases, recovery.key)
        reach(Failpoint.AFTER_END_DRAWS)
        await self._have_look(ended)

    async def _workloads(self, moves: Iterable[WorkloadMove]) -> list[AdmittedWorkload]:
        names = {WorkloadMove.key_of(one) for one in moves}
        return list((await read_workloads(self._databases, names)).values())

    async def _jobs(self, moves: Iterable[WorkloadMove]) -> list[AdmittedWorkload]:
        return await self._workloads(one for one in moves if one.kind is WorkloadKind.JOB)

    async def _have_look(self, names: Iterable[tuple[TenantId, WorkloadName]]) -> None:
        """Hints at once; what is lost, the recovery's next look sends again."""
        hint = Look(why="its slots move between regions")
        await self._sender.send_all(
            (workload_id(tenant, workload), "look", hint) for tenant, workload in names
        )


def strays(
    region: RegionId,
    returned: Iterable[WorkloadMove],
    workloads: Iterable[AdmittedWorkload],
    elsewhere: Mapping[RowKey, frozenset[int]],
) -> list[str]:
    """Services of whose slots some are not the region's again, in sentences; pure.

    `elsewhere`: the slots that it had only taken in when another region was lost.
    """
    moves = {WorkloadMove.key_of(one): one for one in returned}
    found: list[str] = []
    for workload in workloads:
        name = (str(workload.tenant), str(workload.workload))
        if workload.deleted or workload.spec.kind is WorkloadKind.JOB or name not in moves:
            continue
        had = {slot for slot in moves[name].slots if slot < workload.spec.replicas}
        had -= elsewhere.get(name, frozenset())
        missing = len(had.difference(workload.share.get(region, ())))
        if missing:
            found.append(
                f"{missing} of the {len(had)} replicas of {'/'.join(name)} that {region} had are "
                "elsewhere."
            )
    return found


def _is_on_its_way(move: WorkloadMove) -> bool:
    return move.moved_at is not None and move.placed < len(move.lost)
