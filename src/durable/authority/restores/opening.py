"""A region that was fenced for a restore is opened again, once it contradicts nobody any more."""

import logging

from durable.authority.db.connection import Databases
from durable.authority.fleet.policies import read_everywhere, set_policy_state
from durable.authority.overrides.copies import copy_overrides
from durable.authority.policies.region_reads import read_in_force
from durable.authority.recovery.fence import reopen
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import RefusedError
from durable.model.states import PolicyState

log = logging.getLogger(__name__)

OPENER = ActorId("controller:region")


async def open_restored(databases: Databases, region: RegionId, epoch: int) -> bool:
    """Whether it is open now: nothing of others is claimed there, and no lapsed grant is used.

    What is in force elsewhere comes before it takes new work.
    """
    await copy_overrides(databases, region)
    try:
        revision = await read_everywhere(databases)
        if revision is not None and revision not in await read_in_force(databases, region):
            await set_policy_state(databases, region, revision, PolicyState.ACTIVE, OPENER)
        await reopen(databases, region, expected_epoch=epoch, actor=OPENER, reason="restored")
    except RefusedError as error:
        log.info("%s was restored and stays fenced: %s", region, error)
        return False
    return True
