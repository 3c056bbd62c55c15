"""The regions that a command looks at: all of them, or the one that was named."""

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError


async def chosen_regions(databases: Databases, named: RegionId | None) -> list[RegionId]:
    """Refuses a name that no region has, and says which there are."""
    known = await list_regions(databases)
    if named is None:
        return known
    if named not in known:
        there = f"the regions are {', '.join(known)}" if known else "there is none yet"
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION, f"There is no region {named}; {there}."[:500]
        )
    return [named]
