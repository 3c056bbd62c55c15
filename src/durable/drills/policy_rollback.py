"""Promotes a policy, places work under it, and rolls it back: what it placed is replaced."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from durable.authority.reads.claims import read_claims
from durable.drills.checks import audit_tells, becomes, invariants_hold
from durable.drills.drill import Expectation
from durable.drills.people import signed
from durable.drills.world import World, new_request, small_workload
from durable.model.ids import PolicyRevision, TenantId
from durable.model.policy.policy import Guardrails, Policy
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusedError
from durable.resources.table import POLICIES
from durable.scheduling.policies import first_policy
from durable.signals.names import policy_id

WORKLOAD = "policy-drill"
REPLICAS = 4
WITHIN_SECONDS = 120.0
WHY = "drill: policy rollback"
TOLD = ("publish policy", "promote policy", "roll back policy", "set policy state")


async def run(world: World) -> AsyncIterator[Expectation]:
    """A harmless revision plays the bad one: it packs instead of spreading."""
    durable = world.durable
    tenant, before = (await world.subject()).tenant, await _in_force(world)
    bad = first_policy().model_copy(
        update={
            "weights": {"packing": 10.0},
            "choice_band": 0.0,
            "guardrails": Guardrails(bake_seconds=0, step_seconds=0),
        }
    )
    async with signed(durable), _rolled_back(world, tenant, bad) as revision:
        everywhere = await _comes_to(world, revision, PolicyPhase.EVERYWHERE)
        yield Expectation(
            what=f"revision {revision} comes into force in every region",
            met=everywhere,
            seen=_shown(await _in_force(world)),
        )
        await durable.apply(small_workload(tenant, WORKLOAD, replicas=REPLICAS), reason=WHY)
        await durable.wait(tenant, WORKLOAD, within_seconds=WITHIN_SECONDS)
        placed = await _revisions(world)
        yield Expectation(
            what=f"{tenant}/{WORKLOAD} is placed under it",
            met=placed == {revision},
            seen=f"revisions {sorted(placed)}",
        )
        async for expectation in _roll_back(world, tenant, revision, before):
            yield expectation
    yield await invariants_hold(world)


@asynccontextmanager
async def _rolled_back(
    world: World, tenant: TenantId, bad: Policy
) -> AsyncGenerator[PolicyRevision]:
    """The revision, promoted; whatever happens meanwhile, afterwards it decides nowhere."""
    policies = world.durable.policies
    revision = await policies.publish(bad, reason=WHY)
    async with world.removed_afterwards(tenant, WORKLOAD, reason=WHY):
        try:
            await policies.promote(revision, reason=WHY, request_id=new_request())
            yield revision
        finally:
            with suppress(RefusedError):  # it was never promoted, or was rolled back
                await policies.roll_back(revision, reason=WHY, request_id=new_request())
                await _comes_to(world, revision, PolicyPhase.ROLLED_BACK)


async def _roll_back(
    world: World,
    tenant: TenantId,
    revision: PolicyRevision,
    before: dict[str, PolicyRevision],
) -> AsyncIterator[Expectation]:
    await world.durable.policies.roll_back(
        revision, reason=WHY, request_id=new_request(), reroll=True
    )
    is_rolled_back = await _comes_to(world, revision, PolicyPhase.ROLLED_BACK)
    in_force = await _in_force(world)
    yield Expectation(
        what=f"revision {revision} is rolled back, and the one before it decides again",
        met=is_rolled_back and in_force == before,
        seen=_shown(in_force),
    )
    shares = (await world.durable.policies.report(revision)).shares
    yield Expectation(
        what="the report says what became of each replica",
        met=sum(share.replaced for share in shares if share.workload == WORKLOAD) == REPLICAS,
        seen="; ".join(map(str, shares)),
    )

    async def is_replaced() -> bool:
        serves = await world.serves(tenant, WORKLOAD)
        return serves and revision not in await _revisions(world)

    yield await becomes(
        "what it had placed is replaced, and everything serves", is_replaced, bool, WITHIN_SECONDS
    )
    yield await audit_tells(world, policy_id(revision), TOLD)


async def _comes_to(world: World, revision: PolicyRevision, phase: PolicyPhase) -> bool:
    reached = await becomes(
        f"revision {revision} comes to {phase}",
        lambda: world.durable.policy_rollout(revision),
        lambda rollout: rollout.phase is phase,
        WITHIN_SECONDS,
    )
    return reached.met


async def _in_force(world: World) -> dict[str, PolicyRevision]:
    """By region the newest of the revisions that decide there."""
    rows = sorted(await world.durable.get(POLICIES), key=lambda row: row.revision)
    return {str(region): row.revision for row in rows for region in row.in_force}


def _shown(in_force: dict[str, PolicyRevision]) -> str:
    return ", ".join(f"{region} {revision}" for region, revision in in_force.items())


async def _revisions(world: World) -> set[PolicyRevision]:
    """Under which the live claims of the drill's workload were decided."""
    by_region = await world.in_each_region(read_claims)
    return {
        claim.policy_revision
        for claims in by_region.values()
        for claim in claims
        if claim.workload == WORKLOAD
    }
