"""Decide, record the decision, reserve; and again with a fresher cache when refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from durable.activities.steps import Claim, ReserveResult, ReserveStep
from durable.authority.queue.decisions import read_newest_attempt
from durable.authority.quota.budgets import find_draw
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.sides import Regional
from durable.authority.slots.shares import read_moved
from durable.failpoints import Failpoint, reach
from durable.model.ids import NodeId
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.intents import Draw, Granted, Refused, Release, ReleaseCause, Reserve
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import Gang, PendingCode
from durable.model.placement.records import Decision
from durable.model.policy.policy import Policy
from durable.model.refusal import Refusal, RefusalCode
from durable.planners.recovery.moves import draws_on_budgets
from durable.scheduling.decide import decide
from durable.scheduling.findings import findings_of
from durable.scheduling.queue.crash_backoff import avoided_until, still_avoided
from durable.scheduling.queue.retries import retry_after_seconds
from durable.scheduling.request import PlacementRequest, Proposal
from durable.scheduling.work_overrides import ends_after, override_fields

# What the authority would answer again however fresh the cache is, as the reason for the wait.
_PENDING_CODES = {
    RefusalCode.GRANT_EXHAUSTED: PendingCode.GRANT,
    RefusalCode.HEADROOM_RESERVED: PendingCode.HEADROOM,
    RefusalCode.REGION_FENCED: PendingCode.REGION_FENCED,
    RefusalCode.REGION_LEASE_LAPSED: PendingCode.REGION_LEASE_LAPSED,
    RefusalCode.CLOCK_JUMPED: PendingCode.REGION_LEASE_LAPSED,
    RefusalCode.UNKNOWN_TENANT: PendingCode.NO_GRANT,
}

# The rest of the work is ordinary work.
_DRAW_ENDED = frozenset(
    {
        RefusalCode.BUDGET_EXHAUSTED,
        RefusalCode.BUDGET_CLOSED,
        RefusalCode.UNKNOWN_BUDGET,
        RefusalCode.SLOT_NOT_MOVED,
    }
)

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
    # Of the last round: the version that the cache had, the revision that it was decided under, and
    # whether a commit refused anything.
    decided_version: int = 0
    policy_revision: int | None = None
    was_refused: bool = False
    # The recovery budget that moved slots draw on, until that is used up.
    draw: Draw | None = None
    draw_ended: bool = False
    moved: frozenset[int] = frozenset()

    @property
    def turn(self) -> tuple[int, ...]:
        """What is decided next: first what may draw, so that nothing else does."""
        drawing = () if self.draw is None else tuple(s for s in self.waiting if s in self.moved)
        return drawing or self.waiting

    @property
    def turns_draw(self) -> Draw | None:
        return self.draw if self.moved.issuperset(self.turn) else None


@dataclass(frozen=True)
class _DecisionRecord:
    """The decision that counts, which may be one of an earlier run, with what it says."""

    decision: Decision
    request: PlacementRequest
    proposal: Proposal
    # Whether it was made now.
    is_new: bool


class Reserver:
    """One region's decisions, turned into reservations."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional

    async def run(self, step: ReserveStep) -> ReserveResult:
        cache = self._regional.cache
        _, policy = cache.policy()
        so_far = _Outcome(step.slots, step.first_attempt)
        so_far.draw, so_far.moved = await self._find_draw(step)
        rounds = 0
        while so_far.waiting and rounds < policy.rounds_per_attempt:
            record = await self._decide(step, so_far)
            is_new = record.is_new
            if not is_new:
                newest = await self._newest_attempt(step)
                if newest - step.first_attempt >= policy.rounds_per_attempt:
                    return _forgotten(newest)
            await self._send(step, so_far, record)
            if is_new and not so_far.was_refused:
                if so_far.draw is not None and not so_far.moved.issuperset(so_far.waiting):
                    so_far.draw = None
                    await cache.refresh()
                    continue  # with what was not moved, and what found no node
                break  # what waits is woken when what it waits for appears
            rounds += is_new
            await cache.refresh()
            if is_new and cache.version == so_far.decided_version and not so_far.draw_ended:
                break  # nothing has changed, so another decision would be the same
        if len(step.live) + len(so_far.claims) < step.spec.gang_size:
            await self._release_partial_gang(step, so_far)
        return ReserveResult(
            claims=tuple(so_far.claims),
            next_attempt=so_far.attempt,
            pending=(so_far.pending or _NEXT_TURN) if so_far.waiting else None,
            retry_after_seconds=self._retry_after_seconds(step, so_far, policy),
            taken=tuple(sorted(so_far.taken)),
            replayed=so_far.replayed,
            decided_version=so_far.decided_version,
            policy_revision=so_far.policy_revision,
        )

    async def _find_draw(self, step: ReserveStep) -> tuple[Draw | None, frozenset[int]]:
        """What was moved out of a lost region draws on what is kept for that, while it lasts.

        Its other slots do not: they are ordinary work, as they would be without the loss.
        """
        if step.incident is None or not draws_on_budgets(step.spec.priority):
            return None, frozenset()
        databases, key = self._regional.databases, step.key
        moved = await read_moved(
            databases, key.region, key.tenant, key.workload, key.generation, step.incident
        )
        if step.spec.is_gang and moved:
            moved |= frozenset(step.slots)  # as a whole, or not at all
        if moved.isdisjoint(step.slots):
            return None, moved
        return await find_draw(databases, key.region, step.incident, step.spec.resources), moved

    async def _newest_attempt(self, step: ReserveStep) -> int:
        key = step.key
        return await read_newest_attempt(
            self._regional.databases, key.region, key.tenant, key.workload, key.generation
        )

    def _retry_after_seconds(self, step: ReserveStep, so_far: _Outcome, policy: Policy) -> float:
        return retry_after_seconds(
            policy,
            so_far.pending or _NEXT_TURN,
            tries=step.tries,
            queued=self._regional.queued,
            seed=f"{step.key} {step.tries}",
            may_return=self._may_help_after(step, so_far, policy),
        )

    def _may_help_after(
        self, step: ReserveStep, so_far: _Outcome, policy: Policy
    ) -> Iterator[float]:
        """In how many seconds something ends that keeps slots from nodes now."""
        snapshot = self._regional.cache.snapshot()
        for crash in step.crashes:
            if crash.slot in so_far.waiting:
                yield avoided_until(crash, policy).timestamp() - snapshot.now
        yield from ends_after(snapshot, step.key.tenant, step.key.workload)

    async def _send(self, step: ReserveStep, so_far: _Outcome, record: _DecisionRecord) -> None:
        """Sends what was decided, and takes the authority's answer.

        Of an attempt that was made before, the outcomes are returned again, except for claims that
        have ended since.
        """
        decision, proposal, is_new = record.decision, record.proposal, record.is_new
        # One that found the same as the attempt before it was only counted.
        so_far.attempt = decision.attempt + 1
        so_far.policy_revision = decision.policy_revision
        so_far.was_refused = so_far.draw_ended = False
        nodes = {one.slot: one.node for one in proposal.assignments}
        proposed = [slot for slot in so_far.waiting if slot in nodes]
        # As it was decided: the same intents are sent again, whatever has changed since.
        request = record.request
        outcomes = await self._regional.commit(
            [self._intent(step, decision, slot, nodes[slot], request) for slot in proposed]
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

    async def _live_tokens(self, step: ReserveStep) -> set[int]:
        key = step.key
        which = ClaimFilter(tenant=key.tenant, workload=key.workload, generation=key.generation)
        live = await read_claims(self._regional.databases, key.region, which)
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
        so_far.was_refused = True
        if outcome.refusal.code in _DRAW_ENDED:
            so_far.draw, so_far.draw_ended = None, True
        if outcome.refusal.code is RefusalCode.SLOT_TAKEN:
            so_far.taken.add(slot)
        so_far.pending = _pending(outcome.refusal)

    async def _decide(self, step: ReserveStep, so_far: _Outcome) -> _DecisionRecord:
        """The decision that counts for this attempt."""
        cache = self._regional.cache
        revision, policy = cache.policy()
        snapshot = cache.snapshot()
        live = (*step.live, *so_far.claims)
        request = PlacementRequest(
            **step.key.model_dump(),
            attempt=so_far.attempt,
            slots=so_far.turn,
            spec=step.spec,
            live=tuple(SlotOnNode(slot=one.slot, node=one.node) for one in live),
            crashes=still_avoided(step.crashes, policy, snapshot.now),
            urgency=step.urgency,
            draw=so_far.turns_draw,
            **override_fields(snapshot, step.key.tenant, step.key.workload),
        )
        so_far.decided_version = snapshot.version
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
            findings=findings_of(request, proposal),
        )
        stored = await self._regional.decisions.submit(made)
        reach(Failpoint.AFTER_DECISION)
        if stored == made:
            return _DecisionRecord(stored, request, proposal, is_new=True)
        return _DecisionRecord(
            stored,
            PlacementRequest.read(stored.evidence["request"]),
            Proposal.read(stored.evidence["proposal"]),
            is_new=stored.attempt < made.attempt,
        )

    def _intent(
        self,
        step: ReserveStep,
        decision: Decision,
        slot: int,
        node: NodeId,
        request: PlacementRequest,
    ) -> Reserve:
        lease_seconds = decision.evidence["lease_seconds"]
        assert isinstance(lease_seconds, int)
        return Reserve(
            **step.key.intent(slot, decision.attempt, self._regional.cache.epoch),
            node=node,
            resources=step.spec.resources,
            priority=request.spec.priority,
            raised_by=request.raised_by,
            policy_revision=decision.policy_revision,
            lease_ttl_seconds=lease_seconds,
            requirements=step.spec.requirements,
            draw=request.draw,
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


def _forgotten(newest: int) -> ReserveResult:
    """What a placement that was started again is answered, while it has old attempts.

    A step that is run again finds no more of them than one step makes. Of older ones only the
    claims matter: it reads those, and goes on with the next free number.
    """
    return ReserveResult(
        claims=(),
        next_attempt=newest + 1,
        pending=_NEXT_TURN,
        retry_after_seconds=0.0,
        replayed=True,
    )


def _pending(refusal: Refusal) -> Pending:
    code = _PENDING_CODES.get(refusal.code, PendingCode.CONFLICTS)
    return Pending.refused(code, refusal)
