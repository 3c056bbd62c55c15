"""Promotes a policy, places work under it, and takes it back: what it placed is replaced."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.policies.region_reads import read_in_force, read_report
from durable.authority.policies.rows import read_rollout
from durable.authority.reads.claims import read_reservations
from durable.client import Durable
from durable.drills.drill import Drill, Expectation, come_true
from durable.drills.expectations import audit_tells, invariants_hold
from durable.drills.signing import signed
from durable.drills.subject import find_subject
from durable.drills.world import World
from durable.model.ids import PolicyRevision, TenantId
from durable.model.policy.policy import Guardrails, Policy
from durable.model.policy.rollout import PolicyStage
from durable.model.refusal import RefusedError
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
    tenant, before = (await find_subject(durable)).tenant, await _in_force(durable)
    bad = first_policy().model_copy(
        update={
            "weights": {"packing": 10.0},
            "choice_band": 0.0,
            "guardrails": Guardrails(bake_seconds=0, step_seconds=0),
        }
    )
    async with signed(durable), _taken_back(durable, tenant, bad) as revision:
        yield Expectation(
            what=f"revision {revision} comes into force in every region",
            met=await _comes_to(durable, revision, PolicyStage.EVERYWHERE),
            seen=", ".join(f"{region} {one}" for region, one in (await _in_force(durable)).items()),
        )
        spec = {"replicas": REPLICAS, "resources": {"cpu": "100m", "memory": "64Mi"}}
        await durable.apply({"tenant": tenant, "name": WORKLOAD, "spec": spec}, reason=WHY)
        await durable.wait(tenant, WORKLOAD, within_seconds=WITHIN_SECONDS)
        placed = await _revisions(durable)
        yield Expectation(
            what=f"{tenant}/{WORKLOAD} is placed under it",
            met=placed == {revision},
            seen=f"revisions {sorted(placed)}",
        )
        async for one in _roll_back(durable, tenant, revision, before):
            yield one
    yield await invariants_hold(durable)


@asynccontextmanager
async def _taken_back(
    durable: Durable, tenant: TenantId, bad: Policy
) -> AsyncGenerator[PolicyRevision]:
    """The revision, promoted; whatever happens meanwhile, afterwards it decides nowhere."""
    revision = await durable.policies.publish(bad, reason=WHY)
    try:
        await durable.policies.promote(revision, reason=WHY, request_id=_request())
        yield revision
    finally:
        with suppress(RefusedError):  # nobody promoted it, or it was rolled back
            await durable.policies.roll_back(revision, reason=WHY, request_id=_request())
            await _comes_to(durable, revision, PolicyStage.ROLLED_BACK)
        with suppress(RefusedError):  # it was never applied
            await durable.delete(tenant, WORKLOAD, reason=WHY)


async def _roll_back(
    durable: Durable,
    tenant: TenantId,
    revision: PolicyRevision,
    before: dict[str, PolicyRevision],
) -> AsyncIterator[Expectation]:
    await durable.policies.roll_back(revision, reason=WHY, request_id=_request(), reroll=True)
    yield Expectation(
        what=f"revision {revision} is rolled back, and the one before it decides again",
        met=await _comes_to(durable, revision, PolicyStage.ROLLED_BACK)
        and await _in_force(durable) == before,
        seen=", ".join(f"{region} {one}" for region, one in (await _in_force(durable)).items()),
    )
    reports = await ask_regions(
        await list_regions(durable.databases),
        lambda region: read_report(durable.databases, region, revision),
    )
    told = [one for report in reports.by_region.values() for one in report.shares]
    yield Expectation(
        what="the report says what became of each replica",
        met=sum(one.replaced for one in told if one.workload == WORKLOAD) == REPLICAS,
        seen="; ".join(map(str, told)),
    )

    async def is_replaced() -> bool:
        status = await durable.status(tenant, WORKLOAD)
        return revision not in await _revisions(durable) and status.serving >= status.wanted

    yield Expectation(
        what="what it had placed is replaced, and everything serves",
        met=await come_true(is_replaced, WITHIN_SECONDS),
    )
    yield await audit_tells(durable, policy_id(revision), TOLD)


def _request() -> str:
    return f"drill-{uuid.uuid4()}"


async def _comes_to(durable: Durable, revision: PolicyRevision, stage: PolicyStage) -> bool:
    async def has_come() -> bool:
        return (await read_rollout(durable.databases, revision)).stage is stage

    return await come_true(has_come, WITHIN_SECONDS)


async def _in_force(durable: Durable) -> dict[str, PolicyRevision]:
    found = await ask_regions(
        await list_regions(durable.databases),
        lambda region: read_in_force(durable.databases, region),
    )
    return {str(region): max(revisions) for region, revisions in found.by_region.items()}


async def _revisions(durable: Durable) -> set[PolicyRevision]:
    """Under which the live claims of the drill's workload were decided."""
    found = await ask_regions(
        await list_regions(durable.databases),
        lambda region: read_reservations(durable.databases, region),
    )
    return {
        claim.policy_revision
        for claims in found.by_region.values()
        for claim in claims
        if claim.workload == WORKLOAD
    }


DRILL = Drill(
    name="policy-rollback",
    sentence="Promote a policy, place work under it, take it back: what it placed is replaced.",
    runbook="runbooks/policy-rollback.md",
    run=run,
)
