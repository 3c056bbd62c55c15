"""The parts of the stack, in the order in which they are started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import Missing
from durable.authority.migrations import upgrade_all
from durable.settings import Settings
from durable.stack.control_plane import ADDRESSES, AGENT, control_plane
from durable.stack.health.opening import wait_until_ready
from durable.stack.ports import DATABASE_PORT, HOST, port_of
from durable.stack.postgres.server import EmbeddedPostgres
from durable.stack.supervisor import Supervisor
from durable.stack.temporal_server import temporal_child
from durable.state_dir.record import StackError
from durable.temporal.namespace import register

DATABASE = "durable"
POSTGRES_PORTS = {"postgres": DATABASE_PORT}
TEMPORAL_PORTS = {"temporal": 7233, "temporal-ui": 8233}


def start_stack(supervisor: Supervisor, settings: Settings) -> None:
    """Start every part, or use the one that the settings name."""
    database_url = _postgres(supervisor, settings.database_url)
    with supervisor.step("Migrate the database"):
        missing = _migrate(database_url, settings.regional_database_urls)
    for region, why in missing.items():
        supervisor.note(f"{region} starts without its database. {why} Then run durable migrate.")
    address = _temporal(supervisor, settings)
    with supervisor.step(f"Register namespace {settings.temporal_namespace}"):
        asyncio.run(register(settings, address))
    _control_plane(supervisor, settings, database_url, address)
    with supervisor.step("Wait until a placement would go through"):
        for note in asyncio.run(wait_until_ready(settings, database_url, address)):
            supervisor.note(note)


def _control_plane(
    supervisor: Supervisor, settings: Settings, database_url: str, temporal_address: str
) -> None:
    """Last to start, and therefore first to be drained, while the servers still answer."""
    ours = control_plane(
        supervisor.directory / "control-plane", settings, database_url, temporal_address
    )
    if settings.database_url is not None:
        # Its nodes may be real machines: whoever owns the database decides who hosts them.
        ours = [child for child in ours if child.name != AGENT]
        supervisor.note(
            "Nodes are not simulated because DURABLE_DATABASE_URL is set. To simulate them, run "
            "durable agent --simulated --region all."
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


def _migrate(database_url: str, regional: Mapping[str, str]) -> Missing:
    try:
        _, missing = upgrade_all(database_url, regional)
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
