"""An override that two people put in force, as drills rehearse it: neither can do it alone."""

from collections.abc import AsyncIterator, Collection

from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.overrides.reads import obeyed_overrides
from durable.client import Durable
from durable.drills.drill import Expectation, come_true
from durable.drills.expectations import is_refused
from durable.drills.people import without_key
from durable.model.ids import RegionId
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode
from durable.model.states import OverrideState

WITHIN_SECONDS = 60.0
# What the audit tells of one: also that one person alone, and a name alone, were refused.
TOLD = (
    "propose override", "reject message approve", "reject message approve", "activate override",
    "put override in force", "end override",
)  # fmt: skip


async def approve(
    durable: Durable, second: Durable, proposed: Override, *, reason: str
) -> AsyncIterator[Expectation]:
    """Tries without the second person, then without their key, and then as it has to be."""
    found = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{proposed.kind} is proposed, and no region obeys it yet",
        met=found.state is OverrideState.PROPOSED and not await _obeying(durable, proposed),
        seen=f"override {proposed.id}, {found.state}",
    )
    yield await is_refused(
        f"{durable.actor}, who proposed it, cannot approve it",
        RefusalCode.SELF_APPROVAL,
        durable.overrides.approve(proposed.id, reason=reason),
    )
    yield await is_refused(
        f"nobody can approve it in the name of {second.actor} without their key",
        RefusalCode.SIGNATURE_MISSING,
        without_key(second).overrides.approve(proposed.id, reason=reason),
    )
    if (await durable.overrides.read(proposed.id)).state is OverrideState.PROPOSED:
        await second.overrides.approve(proposed.id, reason=reason)
    found = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{second.actor} approves it with their key, and it is in force",
        met=found.state is OverrideState.ACTIVE and found.approver == second.actor,
        seen=f"{found.state} until {found.expires_at:%H:%M:%S}Z",
    )


async def revoke(durable: Durable, override: Override, *, reason: str) -> Expectation:
    """Ends it, long before its time."""
    await durable.overrides.revoke(override.id, reason=reason)

    async def is_over() -> bool:
        return not await _obeying(durable, override)

    forgotten = await come_true(is_over, WITHIN_SECONDS)
    found = await durable.overrides.read(override.id)
    return Expectation(
        what="it is revoked, and no region obeys it any more",
        met=forgotten and found.state is OverrideState.REVOKED,
        seen=found.outcome,
    )


async def _obeying(durable: Durable, override: Override) -> Collection[RegionId]:
    found = await ask_regions(
        await list_regions(durable.databases),
        lambda region: obeyed_overrides(durable.databases, region),
    )
    return [region for region, obeyed in found.by_region.items() if override.id in obeyed]
