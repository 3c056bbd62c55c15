"""An override that two people put in force, as drills rehearse it: neither can do it alone."""

from collections.abc import AsyncIterator

from durable.client import Durable
from durable.drills.checks import is_refused, obeying, override_ends
from durable.drills.drill import Expectation
from durable.drills.people import without_key
from durable.drills.world import World
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
    world: World, second: Durable, proposed: Override, *, reason: str
) -> AsyncIterator[Expectation]:
    """Tries without the second person, then without their key, and then as it has to be."""
    durable = world.durable
    override = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{proposed.kind} is proposed, and no region obeys it yet",
        met=override.state is OverrideState.PROPOSED and not await obeying(world, proposed.id),
        seen=f"override {proposed.id}, {override.state}",
    )
    yield await is_refused(
        f"{durable.actor}, who proposed it, cannot approve it",
        RefusalCode.SELF_APPROVAL,
        durable.overrides.approve(proposed.id, reason=reason),
    )
    yield await is_refused(
        f"it cannot be approved in the name of {second.actor} without their key",
        RefusalCode.SIGNATURE_MISSING,
        without_key(second).overrides.approve(proposed.id, reason=reason),
    )
    if (await durable.overrides.read(proposed.id)).state is OverrideState.PROPOSED:
        await second.overrides.approve(proposed.id, reason=reason)
    override = await durable.overrides.read(proposed.id)
    yield Expectation(
        what=f"{second.actor} approves it with their key, and it is in force",
        met=override.state is OverrideState.ACTIVE and override.approver == second.actor,
        seen=f"{override.state} until {override.expires_at:%H:%M:%S}Z",
    )


async def revoke(world: World, override: Override, *, reason: str) -> Expectation:
    """Ends it, long before its time."""
    await world.durable.overrides.revoke(override.id, reason=reason)
    what = "it is revoked, and no region obeys it any more"
    return await override_ends(world, override, what, OverrideState.REVOKED, WITHIN_SECONDS)
