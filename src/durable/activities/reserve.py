"""Decide, record the decision, reserve; and again with a fresher cache when refused."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from durable.activities.steps import Claim, Reserved, ReserveStep
from durable.authority.reads.claims import read_live_claims
from durable.authority.sides import Regional
from durable.failpoints import Failpoint, reach
from durable.model.claims import SlotOnNode
from durable.model.ids import NodeId
from durable.model.intents import Granted, Refused, Release, ReleaseCause, Reserve
from durable.model.pending import Pending
from durable.model.pending_reasons import Gang, PendingCode
from durable.model.records import Decision
from durable.model.refusal import Refusal, RefusalCode
from durable.scheduling.crash_backoff import retry_after_seconds, still_avoided
from durable.scheduling.decide import decide
from durable.scheduling.request import PlacementRequest, Proposal

# A placement that was started anew walks through so many old attempts before it waits.
MAX_ATTEMPTS_PER_STEP = 200

# What the authority would answer again however fresh the cache is, as the reason for the wait.
_PENDING_CODES = {
    RefusalCode.GRANT_EXHAUSTED: PendingCode.GRANT,
    RefusalCode.HEADROOM_RESERVED: PendingCode.HEADROOM,
    RefusalCode.REGION_FENCED: PendingCode.REGION_FENCED,
    RefusalCode.UNKNOWN_TENANT: PendingCode.NO_GRANT,
}

_NEXT_TURN = Pending(code=PendingCode.QUEUED)


@dataclass
class _Outcome:
    """What has come of the step so far."""

    waiting: tuple[int, ...]
    attempt: int
    claims: list[Claim] = field(default_factory=list[Claim])
    taken: set[int] = field(default_factory=set[int])
    replayed: bool = False
    pending: Pending | None = None


class Reserver:
    """One region's decisions, turned into reservations."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional

    async def run(self, step: ReserveStep) -> Reserved:
        cache = self._regional.cache
        _, policy = cache.policy()
        so_far = _Outcome(step.slots, step.first_attempt)
        last_attempt = step.first_attempt + MAX_ATTEMPTS_PER_STEP
        rounds = 0
        while rounds < policy.rounds_per_attempt and so_far.attempt < last_attempt:
            decided_at = cache.version
            rounds += await self._round(step, so_far)
            if not so_far.waiting:
                break
            await cache.refresh()
            if so_far.pending is not None and cache.version == decided_at:
                break  # nothing has changed, so another decision would be the same
        if len(step.live) + len(so_far.claims) < step.spec.gang_size:
            await self._release_partial_gang(step, so_far)
        return Reserved(
            claims=tuple(so_far.claims),
            next_attempt=so_far.attempt,
            pending=(so_far.pending or _NEXT_TURN) if so_far.waiting else None,
            retry_after_seconds=retry_after_seconds(
                policy, step.tries, step.crashes, so_far.waiting, cache.snapshot().now
            ),
            taken=tuple(sorted(so_far.taken)),
            replayed=so_far.replayed,
        )

    async def _round(self, step: ReserveStep, so_far: _Outcome) -> bool:
        """One attempt: a decision for the slots that wait, and the authority's answer to it.

        False for an attempt that was made before: its outcomes are returned again, except for
        claims that have ended since, and it does not count.
        """
        decision, is_new = await self._decide(step, so_far)
        so_far.attempt += 1
        proposal = Proposal.model_validate(decision.evidence["proposal"])
        nodes = {one.slot: one.node for one in proposal.assignments}
        proposed = [slot for slot in so_far.waiting if slot in nodes]
        outcomes = await self._regional.commit(
            [self._intent(step, decision, slot, nodes[slot]) for slot in proposed]
        )
        reach(Failpoint.AFTER_RESERVE)
        so_far.pending = proposal.pending
        live = None if is_new else await self._live_tokens(step)
        so_far.replayed |= not is_new
        for slot, outcome in zip(proposed, outcomes, strict=True):
            has_ended = live is not None and getattr(outcome, "token", None) not in live
            if isinstance(outcome, Refused) or not has_ended:
                self._record(so_far, decision.attempt, slot, outcome)
        done = {claim.slot for claim in so_far.claims}
        so_far.waiting = tuple(slot for slot in so_far.waiting if slot not in done)
        return is_new

    async def _live_tokens(self, step: ReserveStep) -> set[int]:
        key = step.key
        live = await read_live_claims(
            self._regional.databases, key.region, key.tenant, key.workload, key.generation
        )
        return {claim.token for claim in live}

    def _record(
        self, so_far: _Outcome, attempt: int, slot: int, outcome: Granted | Refused
    ) -> None:
        if isinstance(outcome, Granted):
            so_far.claims.append(
                Claim(
                    slot=slot,
                    attempt=attempt,
                    token=outcome.token,
                    node=outcome.node,
                    version=outcome.version,
                    expires_at=outcome.expires_at,
                )
            )
            return
        if outcome.refusal.code is RefusalCode.SLOT_TAKEN:
            so_far.taken.add(slot)
        so_far.pending = _pending(outcome.refusal)

    async def _decide(self, step: ReserveStep, so_far: _Outcome) -> tuple[Decision, bool]:
        """The decision of this attempt, and whether it is the one made now."""
        cache = self._regional.cache
        revision, policy = cache.policy()
        snapshot = cache.snapshot()
        live = (*step.live, *so_far.claims)
        request = PlacementRequest(
            **step.key.model_dump(),
            attempt=so_far.attempt,
            slots=so_far.waiting,
            spec=step.spec,
            live=tuple(SlotOnNode(slot=one.slot, node=one.node) for one in live),
            crashes=still_avoided(step.crashes, policy, snapshot.now),
        )
        proposal = decide(snapshot, request, policy, revision)
        made = Decision(
            **step.key.model_dump(),
            attempt=so_far.attempt,
            policy_revision=revision,
            cache_version=snapshot.version,
            evidence={
                "request": request.model_dump(mode="json", exclude_defaults=True),
                "proposal": proposal.model_dump(mode="json"),
                "lease_seconds": policy.reservation_lease_seconds,
            },
            decided_at=datetime.fromtimestamp(snapshot.now, UTC),
        )
        stored = await self._regional.decisions.submit(made)
        reach(Failpoint.AFTER_DECISION)
        return stored, stored == made

    def _intent(self, step: ReserveStep, decision: Decision, slot: int, node: NodeId) -> Reserve:
        lease_seconds = decision.evidence["lease_seconds"]
        assert isinstance(lease_seconds, int)
        return Reserve(
            **step.key.intent(slot, decision.attempt, self._regional.cache.epoch),
            node=node,
            resources=step.spec.resources,
            priority=step.spec.priority,
            policy_revision=decision.policy_revision,
            lease_ttl_seconds=lease_seconds,
            requirements=step.spec.requirements,
            evidence=f"decision {decision.attempt} at version {decision.cache_version}",
        )

    async def _release_partial_gang(self, step: ReserveStep, so_far: _Outcome) -> None:
        """Too few for the gang: none of it is kept."""
        got, epoch = len(so_far.claims), self._regional.cache.epoch
        why = "too few of the gang were reserved"
        await self._regional.commit(
            [
                Release(**claim.intent(step.key, epoch, why), cause=ReleaseCause.WITHDRAWN)
                for claim in so_far.claims
            ]
        )
        so_far.claims.clear()
        so_far.waiting = step.slots
        if so_far.pending is None or so_far.pending.code is not PendingCode.GANG:
            gang = Gang(
                size=step.spec.gang_size,
                slots=len(step.slots),
                placeable=got,
                live=len(step.live),
                was_reserved=True,
                because=so_far.pending and so_far.pending.reason(),
            )
            so_far.pending = Pending.because(PendingCode.GANG, gang)


def _pending(refusal: Refusal) -> Pending:
    code = _PENDING_CODES.get(refusal.code, PendingCode.CONFLICTS)
    return Pending.refused(code, refusal)
