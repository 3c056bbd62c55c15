"""What only regions know about a proposal: whether its zone or node exists, and its gates."""

from collections.abc import Sequence

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import UnreachableRegions, ask_regions
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.node_targets import find_nodes
from durable.authority.fleet.policies import read_revision
from durable.authority.fleet.regions import list_regions
from durable.authority.recovery.region_facts import read_facts
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import RegionId
from durable.model.overrides.effects import Effects, Gate, KeptBudget, OverrideScope
from durable.model.policy.policy import Policy
from durable.model.refusal import RefusalCode, RefusedError

_ACTIVE = text("""
    SELECT revision FROM regional.policy_states WHERE region = :region AND state = 'active'
""")


async def check_places(databases: Databases, scope: OverrideScope) -> None:
    """Refuses a region, zone or node that does not exist."""
    if scope.region is None:
        return
    regions = await list_regions(databases)
    if scope.region not in regions:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            f"There is no region {scope.region}; the regions are {', '.join(regions)}.",
        )
    if scope.zone is not None:
        zone = NodesTarget(region=scope.region, kind=NodesKind.ZONE, name=scope.zone)
        await _find(databases, scope.region, zone)
    if scope.node is not None:
        await _find(databases, scope.region, NodesTarget.of_node(scope.region, scope.node))


@regional_transaction("durable_reader", "look for {target}")
async def _find(connection: AsyncConnection, region: RegionId, target: NodesTarget) -> None:
    await find_nodes(connection, target)


async def check_incident(
    databases: Databases, scope: OverrideScope, budget: KeptBudget | None
) -> None:
    """Refuses to keep capacity under a name that no recovery will draw on."""
    if budget is None:
        return
    facts = await read_facts(databases)
    drawing = [
        fact.loss.incident for region, fact in sorted(facts.items()) if region != scope.region
    ]
    if budget.incident not in drawing:
        raise RefusedError(
            RefusalCode.UNKNOWN_INCIDENT,
            f"No recovery draws on capacity of {scope.region} under the name {budget.incident}; "
            "give the region that is lost and its epoch, as `durable recovery show` says: "
            f"{', '.join(drawing) or 'there is no other region'}.",
        )


async def check_gates(
    databases: Databases, regions: Sequence[RegionId], effects: Effects
) -> UnreachableRegions:
    """Refuses to skip a gate that the active policy of some region does not let go of.

    Regions that do not answer are named and keep no other waiting.
    """
    if not effects.skips:
        return {}
    answers = await ask_regions(regions, lambda one: _active_revision(databases, one))
    for region, revision in answers.by_region.items():
        if revision is None:
            continue
        policy = Policy.read((await read_revision(databases, revision)).spec)
        closed = [gate for gate in effects.skips if gate not in policy.overridable_gates]
        if closed:
            raise _not_overridable(region, revision, closed[0], policy.overridable_gates)
    return answers.unreachable


@regional_transaction("durable_reader", "read the policy of {region}")
async def _active_revision(connection: AsyncConnection, region: RegionId) -> int | None:
    return (await connection.execute(_ACTIVE, {"region": region})).scalar_one_or_none()


def _not_overridable(
    region: RegionId, revision: int, gate: Gate, allowed: Sequence[Gate]
) -> RefusedError:
    listed = ", ".join(allowed) or "none"
    return RefusedError(
        RefusalCode.GATE_NOT_OVERRIDABLE,
        f"Policy revision {revision}, active in {region}, does not let anyone override the gate "
        f"{gate}; overridable_gates lists: {listed}.",
    )
