"""The steps of a policy revision: shadow, order, advance.

Each is idempotent: an order by its request id, a step by the number of the order that it follows.
One that is taken again after a crash or a timeout finds what it did.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from temporalio import activity
from temporalio.client import Client

from durable.activities.failures import refusal_failure
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.policies import read_everywhere, read_revision
from durable.authority.fleet.regions import list_regions
from durable.authority.overrides.freeze import check_not_frozen, read_frozen
from durable.authority.policies.health import read_health, read_pending_percent
from durable.authority.policies.orders import take_order
from durable.authority.policies.phases import reach_phase, record_shadow, watch_region
from durable.authority.policies.region_reads import read_in_force, read_region_policy, read_report
from durable.authority.policies.regions import LeftRegion, enter_region, leave_region
from durable.authority.policies.rows import read_rollout, read_shadows
from durable.failpoints import Failpoint, reach
from durable.model.ids import PolicyRevision, RegionId
from durable.model.operators.rights import OperatorMessage, OrderAnswer
from durable.model.policy.policy import Guardrails, Policy
from durable.model.policy.rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyPhase,
    PolicyProgress,
    PolicyRollout,
    RolledBack,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import PolicyState
from durable.model.time_left import TimeLeft
from durable.plan.shadow import Shadow
from durable.planners.policy_rollout.guardrails import stricter
from durable.planners.policy_rollout.steps import (
    Enter,
    Hold,
    LeaveRegion,
    ObservedPolicy,
    PolicyStep,
    Reach,
    Trip,
    Watch,
    next_step,
)
from durable.planners.rest import Rest
from durable.scheduling.policies import read_policy
from durable.signals.names import POLICY_CONTROLLER, revision_of, workload_id
from durable.signals.payloads import Look, controllers_request
from durable.signals.policies import PausePolicy, PolicyRequest, PromotePolicy, RollBackPolicy
from durable.signals.sending import SignalSender
from durable.validation.text import shorten

STEPS_AT_ONCE = 50
WORKLOADS_SHOWN = 50


class PolicyActivities:
    """Activities of the global worker."""

    def __init__(self, databases: Databases, client: Client) -> None:
        self._databases = databases
        self._sender = SignalSender(client)

    @activity.defn
    async def order_policy(self, message: OperatorMessage) -> OrderAnswer[PolicyRollout]:
        """Takes an order, once per request id, from an actor who may give it."""
        order = _order(message)
        try:
            default = await self._default_canary(order.canary)
            taken = await take_order(self._databases, order, asked=message, default_canary=default)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_POLICY_ORDER)
        return taken

    @activity.defn
    async def shadow_policy(self, revision: PolicyRevision) -> None:
        """Compares it with the recent decisions of every region that answers."""
        shadow = Shadow(self._databases, await self._policy(revision), revision)
        answers = await shadow.compare_all(await list_regions(self._databases))
        for report in answers.by_region.values():
            await record_shadow(self._databases, revision, report)

    @activity.defn
    async def advance_policy(self, revision: PolicyRevision) -> PolicyProgress:
        """Takes every step that can be taken now, and answers where that leads."""
        try:
            guardrails = await self._guardrails(revision)
            for _ in range(STEPS_AT_ONCE):
                observed = await self._observe(revision)
                step = next_step(observed, guardrails)
                if isinstance(step, Rest):
                    return await self._progress(observed, step)
                held = await self._take(observed.rollout, step)
                if held is not None:
                    return await self._progress(observed, held)
            observed = await self._observe(revision)
            return await self._progress(observed, Rest("the next step", observed.now))
        except RefusedError as error:
            raise refusal_failure(error) from error

    async def _observe(self, revision: PolicyRevision) -> ObservedPolicy:
        rollout = await read_rollout(self._databases, revision)
        regions = await ask_regions(
            await list_regions(self._databases),
            lambda region: read_region_policy(self._databases, region, revision),
        )
        bake, health = rollout.bake, None
        if bake is not None and bake.region in regions.by_region:
            watched = regions.by_region[bake.region].state
            if watched in (PolicyState.CANARY, PolicyState.ACTIVE):
                health = await read_health(self._databases, bake.region, revision)
        now = await read_time(self._databases)
        frozen = await read_frozen(self._databases, regions.by_region)
        return ObservedPolicy(rollout, regions.by_region, now, regions.unreachable, health, frozen)

    async def _take(self, rollout: PolicyRollout, step: PolicyStep) -> Rest | None:
        """One step, or the wait for the end of a freeze.

        An order that came meanwhile refuses the step, and the next look sees that order.
        """
        try:
            await self._take_step(rollout, step)
        except RefusedError as error:
            if error.refusal.code is RefusalCode.POLICY_FROZEN:
                return Rest(error.refusal.sentence)
            if error.refusal.code is not RefusalCode.OVERTAKEN:
                raise
        return None

    async def _take_step(self, rollout: PolicyRollout, step: PolicyStep) -> None:
        match step:
            case Watch(region):
                pending = await read_pending_percent(self._databases, region)
                await watch_region(self._databases, rollout, region, pending)
            case Enter(region, state):
                await check_not_frozen(self._databases, region)
                await enter_region(self._databases, region, rollout, state)
                reach(Failpoint.AFTER_ENTER_REGION)
            case LeaveRegion(region):
                left = await leave_region(self._databases, region, rollout)
                reach(Failpoint.AFTER_LEAVE_REGION)
                await self._have_workloads_look(region, left)
            case Reach(phase):
                await reach_phase(self._databases, rollout, phase, await self._restored(phase))
            case Trip(sentence):
                why = f"guardrail: {sentence}"
                await self._order_itself(rollout, PolicyOrderKind.ROLLBACK, why)
            case Hold(sentence):
                await self._order_itself(rollout, PolicyOrderKind.PAUSE, sentence)
            case Rest():
                pass
            case _:
                assert_never(step)

    async def _order_itself(
        self, rollout: PolicyRollout, kind: PolicyOrderKind, reason: str
    ) -> None:
        order = PolicyOrder(
            revision=rollout.revision,
            kind=kind,
            actor=POLICY_CONTROLLER,
            reason=shorten(reason),
            request=controllers_request(_OWN_ORDERS[kind], rollout.revision, rollout.number),
            after=rollout.number,
        )
        await take_order(self._databases, order, asked=None, default_canary=RegionId("none"))

    async def _restored(self, phase: PolicyPhase) -> Sequence[PolicyRevision]:
        """The revisions that decide again after a rollback."""
        if phase is not PolicyPhase.ROLLED_BACK:
            return ()
        found = await ask_regions(
            await list_regions(self._databases),
            lambda region: read_in_force(self._databases, region),
        )
        return sorted({revision for one in found.by_region.values() for revision in one})

    async def _progress(self, observed: ObservedPolicy, rest: Rest) -> PolicyProgress:
        rollout = observed.rollout
        report = RolledBack()
        if rollout.phase in (PolicyPhase.ROLLING_BACK, PolicyPhase.ROLLED_BACK):
            reports = await ask_regions(
                observed.regions,
                lambda region: read_report(self._databases, region, rollout.revision),
            )
            report = RolledBack.of_all(reports.by_region.values())
        shadows = await read_shadows(self._databases, rollout.revision)
        return PolicyProgress(
            rollout=rollout,
            regions=observed.regions,
            health=observed.health,
            waits_for=rest.why,
            look_in=rest.until and TimeLeft.of(rest.until, observed.now),
            ordered_for_seconds=(observed.now - rollout.changed_at).total_seconds(),
            shadows=tuple(
                one.model_copy(update={"workloads": one.changed[:WORKLOADS_SHOWN]})
                for one in shadows
            ),
            report=report.shares[:WORKLOADS_SHOWN],
            report_count=report.count,
        )

    async def _have_workloads_look(self, region: RegionId, left: LeftRegion) -> None:
        """Hints at once; what is lost is found by the status controller's sweep."""
        await self._sender.send_all(
            (
                workload_id(tenant, workload),
                "look",
                Look(why="its policy was rolled back", region=region, generation=generation),
            )
            for tenant, workload, generation in left.shares
        )

    async def _guardrails(self, revision: PolicyRevision) -> Guardrails:
        """The stricter of its own and those of the revision that it is to replace."""
        own = (await self._policy(revision)).guardrails
        before = await read_everywhere(self._databases)
        return own if before is None else stricter(own, (await self._policy(before)).guardrails)

    async def _policy(self, revision: PolicyRevision) -> Policy:
        return read_policy((await read_revision(self._databases, revision)).spec)

    async def _default_canary(self, asked: RegionId | None) -> RegionId:
        """The first region by name, unless a person names one that exists."""
        regions = await list_regions(self._databases)
        if asked is not None and asked not in regions:
            raise RefusedError(
                RefusalCode.UNKNOWN_REGION,
                f"There is no region {asked}; the regions are {', '.join(regions)}.",
            )
        if not regions:
            raise AuthorityError("There is no region yet; load a fleet first.")
        return regions[0]

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.order_policy, self.shadow_policy, self.advance_policy)


# What the controller orders itself, as its requests are named.
_OWN_ORDERS = {PolicyOrderKind.ROLLBACK: "guardrail", PolicyOrderKind.PAUSE: "silent"}

_PAYLOADS: Mapping[PolicyOrderKind, type[PolicyRequest]] = {
    PolicyOrderKind.PROMOTE: PromotePolicy,
    PolicyOrderKind.PAUSE: PausePolicy,
    PolicyOrderKind.ROLLBACK: RollBackPolicy,
}


def _order(message: OperatorMessage) -> PolicyOrder:
    kind = PolicyOrderKind(message.message)
    request = message.payload_as(_PAYLOADS[kind])
    given: dict[str, Any] = {}
    if isinstance(request, PromotePolicy):
        given = {"canary": request.canary}
    elif isinstance(request, RollBackPolicy):
        given = {"to_revision": request.to, "reroll": request.reroll}
    return PolicyOrder(
        revision=revision_of(message.workflow_id),
        kind=kind,
        actor=request.actor,
        reason=request.reason,
        request=request.request_id,
        after=request.after,
        **given,
    )
