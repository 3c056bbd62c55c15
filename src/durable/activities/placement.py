"""The steps of a placement: recall, enqueue, reserve, bind, start, stop, release, expire.

Each is idempotent by its business key, so any of them may be sent again after a crash, a timeout or
a replay. The decision is recorded before its intents are sent: a step that is taken again finds
the decision and sends the same intents, whatever the cache says by then.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from durable.activities.failures import refuse_elsewhere
from durable.activities.messages import AuditMessages, write_messages
from durable.activities.reserve import Reserver
from durable.activities.steps import (
    Claim,
    ClaimsStep,
    CurrentUrgency,
    RecallStep,
    ReserveResult,
    ReserveStep,
    StartStep,
    StepRefusal,
    StepResult,
    UrgencyStep,
)
from durable.authority.reads.placements import PlacementRead
from durable.authority.sides import Regional
from durable.failpoints import Failpoint, reach
from durable.model.placement.intents import AnyIntent, Bind, Evict, Expire, Granted, Release, Start
from durable.model.placement.request import SchedulingRequest
from durable.model.refusal import Refusal, RefusalCode
from durable.model.work.share import PlacementFacts
from durable.scheduling.queue.urgency import urgency_at

UNREACHABLE = "unreachable"
# Messages to the placement wait as long; a process that takes longer is reported by a signal.
EFFECT_SECONDS = 1.0


class PlacementActivities:
    """Steps in one region, on that region's cache and commit queue."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional
        self._reserver = Reserver(regional)

    @activity.defn
    async def enqueue(self, request: SchedulingRequest) -> Refusal | None:
        """Writes the placement's row in the region's queue, for operators and agents.

        Answers why it may not end yet, if its share has changed since it read it.
        """
        refused = await self._write_request(request)
        is_early = refused is not None and refused.code is RefusalCode.OLD_DIVISION
        return refused if is_early else None

    @activity.defn
    async def reserve(self, step: ReserveStep) -> ReserveResult:
        """Decides on the cache and reserves; when refused, decides again, a few times."""
        refuse_elsewhere(self._regional.region, step.key.region)
        return await self._reserver.run(step)

    @activity.defn
    async def urgency(self, step: UrgencyStep) -> CurrentUrgency:
        """By how much the region's policy raises the priority of a job with a deadline now."""
        _, policy = self._regional.cache.policy()
        now = datetime.fromtimestamp(self._regional.cache.snapshot().now, UTC)
        found = urgency_at(policy.urgency, step.priority, step.admitted_at, step.due_at, now)
        seconds = None if found.until is None else (found.until - now).total_seconds()
        return CurrentUrgency(raised_by=found.raised_by, seconds=seconds)

    @activity.defn
    async def bind(self, step: ClaimsStep) -> StepResult:
        """Makes reservations permanent."""
        bound = await self._commit(step, lambda fields: Bind(**fields))
        reach(Failpoint.AFTER_BIND)
        return bound

    @activity.defn
    async def start(self, step: StartStep) -> StepResult:
        """Publishes what to run and asks the nodes to start it.

        What comes up within a moment is in the answer, so that a quick start needs no message.
        """
        if step.request is not None:
            await self._write_request(step.request)
        reach(Failpoint.BEFORE_START)
        started = await self._commit(step, lambda fields: Start(**fields))
        reach(Failpoint.AFTER_START)
        return await self._with_effect(step, started)

    @activity.defn
    async def stop(self, step: ClaimsStep) -> StepResult:
        """Asks the nodes to stop; the claims live until a release shows that they have.

        What ends within a moment is in the answer, so that a quick stop needs no message.
        """
        stopped = await self._commit(
            step, lambda fields: Evict(**fields, is_forced=fields["slot"] in step.forced)
        )
        reach(Failpoint.AFTER_EVICT)
        return await self._with_effect(step, stopped)

    @activity.defn
    async def release(self, step: ClaimsStep) -> StepResult:
        """Frees claims whose cause shows that it is safe."""
        if step.unless_fenced and not self._regional.cache.snapshot().is_open:
            return _not_while_fenced(step)
        released = await self._commit(step, lambda fields: Release(**fields, cause=step.cause))
        reach(Failpoint.AFTER_RELEASE)
        return released

    @activity.defn
    async def expire(self, step: ClaimsStep) -> StepResult:
        """Frees reservations whose lease has run out."""
        return await self._commit(step, lambda fields: Expire(**fields))

    @activity.defn
    async def recall(self, step: RecallStep) -> PlacementFacts:
        """What the region knows of this placement: its claims, and its share if that is news."""
        key = step.key
        refuse_elsewhere(self._regional.region, key.region)
        return await self._regional.placements.facts(
            PlacementRead(
                key.tenant,
                key.workload,
                key.generation,
                step.known_revision,
                step.with_past,
                step.first_slot,
            )
        )

    @activity.defn
    async def audit(self, step: AuditMessages) -> None:
        """Writes messages into the region's audit, accepted or not."""
        await write_messages(self._regional.databases, self._regional.region, step)

    async def _write_request(self, request: SchedulingRequest) -> Refusal | None:
        refuse_elsewhere(self._regional.region, request.region)
        reach(Failpoint.BEFORE_ENQUEUE)
        refused = await self._regional.requests.submit(request)
        reach(Failpoint.AFTER_ENQUEUE)
        return refused

    async def _with_effect(self, step: ClaimsStep, result: StepResult) -> StepResult:
        """Also what was observed of the step, if that comes soon."""
        if not result.done or not step.passing:
            return result
        key = step.key
        share = await self._regional.watch.wait_past(
            (str(key.tenant), str(key.workload), key.generation),
            (claim.token for claim in result.done),
            step.passing,
            seconds=EFFECT_SECONDS,
        )
        observed = None if share is None else share.observed()
        return result.model_copy(update={"observed": observed})

    async def _commit(
        self, step: ClaimsStep, intent: Callable[[dict[str, Any]], AnyIntent]
    ) -> StepResult:
        refuse_elsewhere(self._regional.region, step.key.region)
        epoch = self._regional.cache.epoch
        outcomes = await self._regional.commit(
            [intent(claim.intent(step.key, epoch, step.why_of(claim))) for claim in step.claims]
        )
        done: list[Claim] = []
        refused: list[StepRefusal] = []
        for claim, outcome in zip(step.claims, outcomes, strict=True):
            if isinstance(outcome, Granted):
                done.append(claim.model_copy(update={"version": outcome.version}))
            elif outcome.refusal.code is RefusalCode.FENCED_WRITER:
                # Nothing was recorded: the same step is sent again under the region's new epoch.
                await self._regional.cache.refresh()
                raise ApplicationError(outcome.refusal.sentence, type=UNREACHABLE)
            else:
                refused.append(StepRefusal(slot=claim.slot, refusal=outcome.refusal))
        return StepResult(done=tuple(done), refused=tuple(refused))

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.recall, self.enqueue, self.reserve, self.bind, self.start, self.stop,
            self.release, self.expire, self.audit, self.urgency,
        )  # fmt: skip


def _not_while_fenced(step: ClaimsStep) -> StepResult:
    """Nothing could be placed in their stead, and hundreds would ask at the same time."""
    region = step.key.region
    why = Refusal(
        code=RefusalCode.REGION_FENCED,
        sentence=f"{region} is fenced; wait for its recovery, or for the node to come back.",
    )
    refused = tuple(StepRefusal(slot=claim.slot, refusal=why) for claim in step.claims)
    return StepResult(done=(), refused=refused)
