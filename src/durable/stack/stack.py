"""The parts of the stack, in the order in which they are started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.db.schema_version import SchemaVersionError
from durable.authority.fleet.regions import regions_at
from durable.authority.migrations import upgrade_all
from durable.model.ids import ActorId, RegionId
from durable.settings import Settings
from durable.stack.child import Child
from durable.stack.control_plane import ADDRESSES, AGENT, control_plane
from durable.stack.opening import wait_until_ready
from durable.stack.ports import DATABASE_PORT, HOST, port_of
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.supervisor import Supervisor
from durable.stack.temporal_server import temporal_child
from durable.state_dir.record import StackError
from durable.temporal.namespace import register

DATABASE = "durable"
# Of a region's own server: its directory, its part of the stack and the name of its port.
OF_REGION = "postgres-"
POSTGRES_PORTS = {"postgres": DATABASE_PORT}
TEMPORAL_PORTS = {"temporal": 7233, "temporal-ui": 8233}


def start_stack(supervisor: Supervisor, settings: Settings) -> None:
    """Start every part, or use the one that the settings name."""
    database_url = _postgres(supervisor, settings.database_url)
    regional_urls = _regional_postgres(supervisor, settings, database_url)
    with supervisor.step("Migrate the database"):
        missing = _migrate(database_url, regional_urls, settings)
    for region, why in missing.items():
        supervisor.note(f"{region} starts without its database. {why} Then run `durable migrate`.")
    address = _temporal(supervisor, settings)
    with supervisor.step(f"Register namespace {settings.temporal_namespace}"):
        asyncio.run(register(settings, address))
    _control_plane(supervisor, settings, database_url, regional_urls, address)
    with supervisor.step("Wait until a placement would go through"):
        for note in asyncio.run(wait_until_ready(settings, database_url, address)):
            supervisor.note(note)


def _control_plane(
    supervisor: Supervisor,
    settings: Settings,
    database_url: str,
    regional_urls: Mapping[str, str],
    temporal_address: str,
) -> None:
    """Last to start, and therefore first to be drained, while the servers still answer."""
    ours = control_plane(
        supervisor.directory / "control-plane",
        settings,
        database_url,
        regional_urls,
        temporal_address,
    )
    if settings.database_url is not None:
        # Its nodes may be real machines: the owner of the database decides who hosts them.
        ours = [child for child in ours if child.name != AGENT]
        supervisor.note(
            "Nodes are not simulated because DURABLE_DATABASE_URL is set. To simulate them, run "
            "`durable agent --simulated --region all`."
        )
    with supervisor.step(f"Start {', '.join(child.name for child in ours)}"):
        supervisor.launch_together([(child, ADDRESSES[child.name]) for child in ours])


def _postgres(supervisor: Supervisor, external_url: str | None) -> str:
    if external_url is not None:
        # Only the address: the rest of the URL may hold a password.
        address = f"{urlsplit(external_url).hostname}:{port_of(external_url)}"
        supervisor.use("postgres", address, "DURABLE_DATABASE_URL")
        return external_url
    server = EmbeddedPostgres(supervisor.directory / "postgres")
    with supervisor.step("Start PostgreSQL"):
        supervisor.launch(POSTGRES_PORTS, lambda ports: server.child(ports["postgres"]))
        url = server.ensure_database(DATABASE)
    supervisor.save(database_url=url)
    return url


def _regional_postgres(
    supervisor: Supervisor, settings: Settings, database_url: str
) -> Mapping[str, str]:
    """A server for each region that was given one, now or in an earlier start of this stack."""
    named = [name for name in settings.database_per_region.split(",") if name]
    if settings.database_url is not None or settings.regional_database_urls:
        if named:
            raise StackError(
                "Regions get embedded databases only in a stack that runs its own: name their "
                "databases in DURABLE_REGIONAL_DATABASE_URLS instead."
            )
        return settings.regional_database_urls
    # Directories: beside each is the file of its password.
    kept = {
        path.name.removeprefix(OF_REGION)
        for path in supervisor.directory.glob(f"{OF_REGION}*")
        if path.is_dir()
    }
    _refuse_to_move(set(named) - kept, database_url)
    urls: dict[str, str] = {}
    for region in sorted({*named, *kept}):
        name = f"{OF_REGION}{region}"
        server = EmbeddedPostgres(supervisor.directory / name, name=name)
        with supervisor.step(f"Start PostgreSQL of {region}"):
            supervisor.launch({name: DATABASE_PORT}, partial(_child, server, name))
            urls[region] = server.ensure_database(DATABASE)
    supervisor.save(regional_database_urls=urls)
    return urls


def _child(server: EmbeddedPostgres, name: str, ports: Mapping[str, int]) -> Child:
    return server.child(ports[name])


def _refuse_to_move(regions: set[str], database_url: str) -> None:
    """A region stays where its rows are."""
    here = regions.intersection(asyncio.run(_regions_in(database_url))) if regions else set[str]()
    if here:
        raise StackError(
            f"{sorted(here)[0]} lives in the stack's own database already, and does not move: "
            "start a new stack with --state-dir, or leave it out of --database-per-region."
        )


async def _regions_in(database_url: str) -> list[RegionId]:
    async with Databases(database_url) as databases:
        try:
            return await regions_at(databases, database_url)
        except (AuthorityError, SchemaVersionError):
            return []  # it was never migrated


def _migrate(
    database_url: str, regional_urls: Mapping[str, str], settings: Settings
) -> UnreachableRegions:
    operator = ActorId(settings.acting_as)
    try:
        _, missing = upgrade_all(database_url, regional_urls, operator)
    except AuthorityError as error:
        raise StackError(str(error)) from error
    return missing


def _temporal(supervisor: Supervisor, settings: Settings) -> str:
    if settings.temporal_address is not None:
        supervisor.use("temporal", settings.temporal_address, "DURABLE_TEMPORAL_ADDRESS")
        supervisor.save(temporal_ui_url=settings.temporal_ui_url)
        return settings.temporal_address
    directory = supervisor.directory / "temporal"
    with supervisor.step("Start Temporal"):
        ports = supervisor.launch(
            TEMPORAL_PORTS,
            lambda ports: temporal_child(directory, ports["temporal"], ports["temporal-ui"]),
        )
    address = f"{HOST}:{ports['temporal']}"
    ui_url = (
        f"http://{HOST}:{ports['temporal-ui']}/namespaces/{settings.temporal_namespace}/workflows"
    )
    supervisor.save(temporal_address=address, temporal_ui_url=ui_url)
    return address
