"""How commands reach the control plane: one connection, used inside one event loop."""

import asyncio
import getpass
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.cli.input.options import load_settings
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import RefusalCode, RefusedError

if TYPE_CHECKING:
    from durable.client import Durable

T = TypeVar("T")


def with_authority(state_dir: Path | None, use: Callable[[Databases], Awaitable[T]]) -> T:
    """Calls `use` with the databases of these settings, and closes them afterwards."""
    settings = load_settings(state_dir)
    urls = settings.require_database_url(), settings.regional_database_urls

    async def run() -> T:
        async with Databases(*urls) as databases:
            return await use(databases)

    return asyncio.run(run())


def with_durable(state_dir: Path | None, use: Callable[["Durable"], Awaitable[T]]) -> T:
    """Calls `use` with the SDK, acting as the current user, and closes it afterwards."""
    # Imported here: commands that only read the authority must not load Temporal.
    from durable.client import Durable

    settings = load_settings(state_dir)

    async def run() -> T:
        async with await Durable.connect(settings, actor=current_user()) as durable:
            return await use(durable)

    return asyncio.run(run())


def current_user() -> ActorId:
    """The user of this terminal, as the audit names them."""
    name = re.sub("[^a-z0-9]+", "-", getpass.getuser().lower()).strip("-")
    return ActorId(f"person:{name or 'unknown'}")


async def select_regions(databases: Databases, requested: RegionId | None = None) -> list[RegionId]:
    """All regions, or the requested one; refuses a region that does not exist."""
    regions = await list_regions(databases)
    if requested is None:
        return regions
    if requested not in regions:
        raise unknown_region(requested, regions)
    return [requested]


def unknown_region(requested: RegionId, regions: list[RegionId], hint: str = "") -> RefusedError:
    known = f"the regions are {', '.join(regions)}" if regions else "no region exists yet"
    sentence = f"There is no region {requested}; {known}.{hint}"
    return RefusedError(RefusalCode.UNKNOWN_REGION, sentence[:500])
