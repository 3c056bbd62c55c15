"""The detection controller: watches every region from outside, and begins recoveries.

Each round reads what can be seen of all regions, names what it is, keeps suspicions in the
authority, and begins the recovery of a region whose loss has lasted. A region that lost nothing but
its worker is kept on its lease, so that what runs there goes on. A round that cannot read the
global side decides nothing, and what was not seen for a while is watched again.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from temporalio.service import RPCError

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.recovery.recoveries import newest_recovery
from durable.authority.recovery.region_facts import read_facts
from durable.authority.recovery.region_leases import renew, settle_ahead
from durable.authority.recovery.signs import NodeSigns, read_node_signs
from durable.authority.recovery.suspicions import (
    clear_suspicion,
    record_seen,
    record_suspicion,
    suspicion_of,
)
from durable.controllers.region_lease import LEASE_SECONDS
from durable.controllers.rounds import in_rounds
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import ActorId, RegionId
from durable.model.recovery.detection import (
    LossKind,
    LossVerdict,
    RecoveryPolicy,
    RegionCondition,
    RegionSigns,
    Suspicion,
)
from durable.model.refusal import RefusedError
from durable.planners.recovery.detection import (
    is_due,
    is_of,
    judge,
    keep_watching,
    must_renew,
    next_suspicion,
)
from durable.signals.names import regional_queue

log = logging.getLogger(__name__)

ACTOR = ActorId("controller:detection")
POLL_SECONDS = 2.0

# Of these task queues, those that no worker asks for work now; None if Temporal does not answer.
Unserved = Callable[[Iterable[str], datetime], Awaitable[Sequence[str] | None]]
Begin = Callable[[Suspicion], Awaitable[None]]


class DetectionController:
    """What every region is taken for, and since when."""

    def __init__(
        self,
        databases: Databases,
        unserved: Unserved,
        begin: Begin,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._databases, self._unserved, self._begin = databases, unserved, begin
        self._lease_seconds = lease_seconds
        self._holder = f"the global worker {os.getpid()} on {socket.gethostname()}"
        self._watching_since: datetime | None = None
        self._looked_at: datetime | None = None

    async def run(self) -> None:
        failures = (AuthorityError, RefusedError, RPCError)
        await in_rounds(self.once, POLL_SECONDS, "cannot see the regions", failures)

    async def once(self) -> Mapping[RegionId, LossVerdict]:
        """Looks once; answers what each region is taken for."""
        facts = await read_facts(self._databases)
        if not facts:
            return {}  # before the first fleet there is no policy either
        for fact in facts.values():
            if fact.is_lease_ahead:
                await settle_ahead(self._databases, fact.region)
        policy = await read_recovery_policy(self._databases)
        signs = await self._signs(facts, policy)
        # After the signs: while it waited long for an answer, it was not watching.
        now = max(fact.read_at for fact in (await read_facts(self._databases)).values())
        since = keep_watching(self._watching_since, self._looked_at, now)
        self._watching_since, self._looked_at = since, now
        verdicts = judge(signs, policy)
        for region, verdict in verdicts.items():
            await self._show(facts[region].seen, verdict, now)
            before = suspicion_of(facts[region])
            suspicion = next_suspicion(before, verdict, now, policy)
            await self._keep(region, before, suspicion, verdict)
            if suspicion is not None and is_due(suspicion, now, since, policy):
                await self._begin_until_known(suspicion)
        await asyncio.gather(
            *(
                self._renew(region)
                for region, verdict in verdicts.items()
                if must_renew(verdict, self._lease_seconds)
            )
        )
        return verdicts

    async def _renew(self, region: RegionId) -> None:
        """In place of the worker that is gone."""
        try:
            await renew(self._databases, region, self._holder, lease_seconds=self._lease_seconds)
        except (AuthorityError, RefusedError) as error:
            log.warning("the lease of %s, which no worker serves: %s", region, error)

    async def _begin_until_known(self, suspicion: Suspicion) -> None:
        """Until the authority has its row: what was started may never have been read.

        From then on the reconciler looks after it, a veto included. One that cannot be started now
        keeps no other region waiting.
        """
        try:
            known = await newest_recovery(self._databases, suspicion.region)
            if known is not None and is_of(known, suspicion):
                return
            await self._begin(suspicion)
        except (AuthorityError, RPCError) as error:
            log.warning("could not begin the recovery of %s: %s", suspicion.region, error)
            return
        log.warning("%s is lost: %s", suspicion.region, suspicion.verdict.sentence)

    async def _keep(
        self,
        region: RegionId,
        before: Suspicion | None,
        suspicion: Suspicion | None,
        verdict: LossVerdict,
    ) -> None:
        if suspicion is None:
            if before is not None:
                await clear_suspicion(self._databases, region, ACTOR, verdict.sentence)
        elif before is None or _is_news(before, suspicion):
            await record_suspicion(self._databases, suspicion, ACTOR)

    # ── what can be seen ────────────────────────────────────────────────────────────────────────

    async def _signs(
        self, facts: Mapping[RegionId, RegionFact], policy: RecoveryPolicy
    ) -> list[RegionSigns]:
        together = timedelta(seconds=policy.together_seconds)

        def since_seconds(fact: RegionFact) -> float:
            """A loss stays in view for as long as it lasts."""
            suspicion, mark = suspicion_of(fact), fact.maintenance
            begun = [] if suspicion is None else [suspicion.since]
            # What fell silent meanwhile is still to be seen when the maintenance has ended.
            if mark is not None and fact.read_at < mark.until + together:
                begun.append(mark.since)
            lasted = fact.read_at - min(begun, default=fact.read_at)
            return (together + lasted).total_seconds()

        queues = {region: regional_queue(region) for region in facts}
        now = max(fact.read_at for fact in facts.values())
        unserved, nodes = await asyncio.gather(
            self._unserved(queues.values(), now),
            ask_regions(
                facts,
                lambda region: read_node_signs(
                    self._databases, region, since_seconds(facts[region])
                ),
            ),
        )
        return [
            _signs_of(
                fact,
                nodes.by_region.get(region),
                None if unserved is None else queues[region] not in unserved,
            )
            for region, fact in facts.items()
        ]

    async def _show(
        self, known: RegionCondition | None, verdict: LossVerdict, now: datetime
    ) -> None:
        """Keeps what a region is taken for where people look, and says so when it has changed."""
        before = known if known is not None and known.kind is verdict.kind else None
        since = now if before is None else before.since
        seen = RegionCondition(kind=verdict.kind, sentence=verdict.sentence, since=since)
        if seen == before:
            return
        await record_seen(self._databases, verdict.region, seen)
        if before is None:
            level = logging.INFO if verdict.kind is LossKind.HEALTHY else logging.WARNING
            log.log(level, "%s: %s. %s", verdict.region, verdict.kind, verdict.sentence)


def _signs_of(fact: RegionFact, nodes: NodeSigns | None, worker_polls: bool | None) -> RegionSigns:
    expires_at, watched_at, sign_at = fact.lease_expires_at, fact.watched_at, fact.last_sign_at
    signs = RegionSigns(
        region=fact.region,
        epoch=fact.epoch,
        is_fenced=fact.is_fenced,
        maintenance=fact.current_maintenance,
        database_answers=nodes is not None,
        worker_polls=worker_polls,
        lease_lapsed_seconds=(
            None if expires_at is None else (fact.read_at - expires_at).total_seconds()
        ),
        watch_age_seconds=(
            None if watched_at is None else (fact.read_at - watched_at).total_seconds()
        ),
        last_sign_seconds=(None if sign_at is None else (fact.read_at - sign_at).total_seconds()),
    )
    if nodes is None:
        return signs
    return signs.model_copy(
        update={
            "zones": nodes.zones,
            "silent_nodes": nodes.silent_nodes,
            "hosts": nodes.hosts,
            "silent_hosts": nodes.silent_hosts,
            "silent_seconds": nodes.silent_seconds,
        }
    )


def _is_news(before: Suspicion, after: Suspicion) -> bool:
    """Whether it is worth a write; the first evidence is the one that is kept otherwise."""
    seen = (before.verdict.kind, before.calm_since is None, before.since)
    return seen != (after.verdict.kind, after.calm_since is None, after.since)
