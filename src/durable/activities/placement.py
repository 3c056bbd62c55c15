"""The steps of a placement: decide and reserve, bind and start, evict, release, expire.

Each is idempotent by its business key, so any of them may be sent again after a crash, a timeout
or a replay. The decision is recorded before its intents are sent: whoever runs the step again finds
the decision and sends the same intents, whatever the cache says by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from durable.activities.asked import of_claim
from durable.activities.rejected import audit_messages
from durable.activities.reserving import Reserving
from durable.activities.steps import (
    Claim,
    ClaimsStep,
    Placed,
    PlaceStep,
    Progress,
    Rejected,
    Share,
    Started,
    StartStep,
    Stepped,
    StepRefusal,
)
from durable.authority.db.errors import AuthorityError
from durable.authority.reads.live_claims import read_live_claims
from durable.authority.regional import Regional
from durable.failpoints import Failpoint, reach
from durable.model.intents import AnyIntent, Bind, Evict, Expire, Granted, Release, Start
from durable.model.refusal import RefusalCode
from durable.model.request import SchedulingRequest
from durable.model.slots import ObservedSlot
from durable.signals.messages import Seen

UNREACHABLE = "unreachable"
# Messages to the placement wait as long; a process that takes longer is told by a signal.
SOON_SECONDS = 1.0


class PlacementActivities:
    """Steps in one region, on that region's cache and commit queue."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional
        self._reserving = Reserving(regional)

    @activity.defn
    async def enqueue(self, progress: Progress) -> None:
        """Writes the placement into the region's queue, where operators and agents read it."""
        reach(Failpoint.BEFORE_ENQUEUE)
        share = progress.share
        await self._regional.requests.submit(
            SchedulingRequest(
                region=share.region,
                tenant=share.tenant,
                workload=share.workload,
                generation=share.generation,
                slots=progress.slots,
                priority=progress.spec.priority,
                state=progress.state,
                pending=progress.pending,
                hold=progress.hold,
                attempts=progress.attempts,
                enqueued_at=progress.enqueued_at,
                deadline=progress.placed_by,
                next_retry_at=progress.next_retry_at,
                spec=progress.spec,
                waiting=progress.waiting,
                completed=progress.completed,
            )
        )
        reach(Failpoint.AFTER_ENQUEUE)

    @activity.defn
    async def place(self, step: PlaceStep) -> Placed:
        """Decides on the cache and reserves; on refusals decides again, a few times.

        Where all slots found their place they are bound and started as well, which spares the
        server a step. Otherwise, and after an error, the placement goes on from what is reserved.
        """
        placed = await self._reserving.run(step)
        if step.go_on is None or not placed.is_whole:
            return placed
        start = StartStep(
            share=step.share,
            claims=placed.claims,
            why="start the slot",
            to_bind=tuple(claim.slot for claim in placed.claims),
            progress=step.go_on.row_after(placed),
            passing=step.go_on.passing,
        )
        try:
            started = await self.start(start)
        except (AuthorityError, ApplicationError):
            return placed
        return placed.model_copy(update={"started": started})

    @activity.defn
    async def start(self, step: StartStep) -> Started:
        """Binds and starts in one commit; what comes up within a moment is told at once."""
        if step.progress is not None:
            await self.enqueue(step.progress)
        reach(Failpoint.BEFORE_START)
        unbound = frozenset(step.to_bind)
        to_bind = [claim for claim in step.claims if claim.slot in unbound]
        bound, started = await asyncio.gather(
            self._step(step, to_bind, lambda of: Bind(**of)),
            self._step(step, step.claims, lambda of: Start(**of)),
        )
        reach(Failpoint.AFTER_START)
        # What was not bound could not be started either, and that is no news.
        still_unbound = {refused.slot for refused in bound.refused}
        return Started(
            taken=started.taken,
            bound=bound.taken,
            refused=(
                *bound.refused,
                *(no for no in started.refused if no.slot not in still_unbound),
            ),
            version=max(bound.version, started.version),
            seen=await self._come_up(step, started),
        )

    async def _come_up(self, step: StartStep, started: Stepped) -> Seen | None:
        share, taken = step.share, set(started.taken)
        if not taken:
            return None
        found = await self._regional.watch.wait_past(
            (str(share.tenant), str(share.workload), share.generation),
            (claim.token for claim in step.claims if claim.slot in taken),
            step.passing,
            seconds=SOON_SECONDS,
        )
        return None if found is None else found.seen()

    @activity.defn
    async def evict(self, step: ClaimsStep) -> Stepped:
        """Asks the nodes to stop; the claims stand until a release shows that they have."""
        stepped = await self._step(step, step.claims, lambda of: Evict(**of))
        reach(Failpoint.AFTER_EVICT)
        return stepped

    @activity.defn
    async def release(self, step: ClaimsStep) -> Stepped:
        stepped = await self._step(step, step.claims, lambda of: Release(**of, cause=step.cause))
        reach(Failpoint.AFTER_RELEASE)
        return stepped

    @activity.defn
    async def expire(self, step: ClaimsStep) -> Stepped:
        return await self._step(step, step.claims, lambda of: Expire(**of))

    @activity.defn
    async def survey(self, share: Share) -> list[ObservedSlot]:
        """What the authority holds of this placement."""
        return await read_live_claims(
            self._regional.databases, share.region, share.tenant, share.workload, share.generation
        )

    @activity.defn
    async def audit(self, rejected: Rejected) -> None:
        """Puts what people sent into the region's audit, whether it was taken or not."""
        await audit_messages(self._regional.databases, self._regional.region, rejected)

    async def _step(
        self,
        step: ClaimsStep,
        claims: Sequence[Claim],
        intent: Callable[[dict[str, Any]], AnyIntent],
    ) -> Stepped:
        epoch = self._regional.cache.epoch
        outcomes = await self._regional.commit(
            [intent(of_claim(step.share, claim, epoch, step.why_of(claim))) for claim in claims]
        )
        taken: list[int] = []
        version = 0
        refused: list[StepRefusal] = []
        for claim, outcome in zip(claims, outcomes, strict=True):
            if isinstance(outcome, Granted):
                taken.append(claim.slot)
                version = max(version, outcome.version)
            elif outcome.refusal.code is RefusalCode.FENCED_WRITER:
                # Nothing was recorded: the same step is sent again under the region's new epoch.
                await self._regional.cache.refresh()
                raise ApplicationError(outcome.refusal.sentence, type=UNREACHABLE)
            else:
                refused.append(StepRefusal(slot=claim.slot, refusal=outcome.refusal))
        return Stepped(taken=tuple(taken), refused=tuple(refused), version=version)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.enqueue, self.place, self.start, self.evict, self.release,
            self.expire, self.survey, self.audit,
        )  # fmt: skip
