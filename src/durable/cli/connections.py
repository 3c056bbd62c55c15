"""How commands reach the control plane: one connection, used inside one event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.markup import escape

from durable.authority.db.connection import Databases, refuse_other_schema
from durable.authority.db.errors import AuthorityError
from durable.authority.operators.refusals import record_refusal
from durable.cli.input.manifests import ManifestError
from durable.cli.input.options import load_settings
from durable.cli.render.output import progress
from durable.model.ids import ActorId, TenantId
from durable.model.refusal import Refusal, RefusalCode
from durable.resources.reader import Reader
from durable.settings import SettingsError
from durable.state_dir.record import StackError

if TYPE_CHECKING:
    from durable.client import Durable
    from durable.health.workflows import WorkflowHealth

T = TypeVar("T")


# A command ends with a sentence of its own; what our parts log is for those that run on.
logging.getLogger("durable").addHandler(logging.NullHandler())


def with_authority(state_dir: Path | None, use: Callable[[Databases], Awaitable[T]]) -> T:
    """Calls `use` with the databases of these settings, and closes them afterwards."""
    settings = load_settings(state_dir)
    urls = settings.require_database_url(), settings.known_regional_urls()

    async def run() -> T:
        async with Databases(*urls) as databases:
            return await use(databases)

    return asyncio.run(run())


def with_reader(state_dir: Path | None, use: Callable[[Reader], Awaitable[T]]) -> T:
    """Calls `use` with the reading half of the SDK, which needs no Temporal, and closes it."""

    async def read(databases: Databases) -> T:
        ask = partial(look_at_workflows, state_dir, databases)
        return await use(Reader(databases, ask))

    return with_authority(state_dir, read)


def with_durable(
    state_dir: Path | None,
    use: Callable[["Durable"], Awaitable[T]],
    *,
    within_seconds: float | None = None,
) -> T:
    """Calls `use` with the SDK, acting as the current user, and closes it afterwards."""
    # Imported here: commands that only read the authority must not load Temporal.
    from durable.client import Durable

    settings = load_settings(state_dir)

    async def run() -> T:
        connecting = Durable.connect(settings, actor=current_user(), within_seconds=within_seconds)
        async with await connecting as durable:
            await refuse_other_schema(durable.databases)
            return await use(durable)

    return asyncio.run(run())


@contextmanager
def audited_input(state_dir: Path | None, command: str) -> Generator[None]:
    """Has the audit know of input that a command refuses itself, if the authority answers."""
    try:
        yield
    except (typer.BadParameter, ManifestError) as wrong:
        sentence = wrong.message if isinstance(wrong, typer.BadParameter) else str(wrong)
        refusal = Refusal(code=RefusalCode.INVALID, sentence=sentence)
        actor = current_user()
        with suppress(AuthorityError, SettingsError, StackError):
            with_authority(
                state_dir,
                lambda databases: record_refusal(
                    databases, actor, f"operator/{actor}", refusal, {"command": command}
                ),
            )
        raise


async def look_at_workflows(
    state_dir: Path | None, databases: Databases, tenant: TenantId | None
) -> "WorkflowHealth | None":
    """What is wrong with workflows; None, with a note, if Temporal cannot be asked."""
    from durable.health.diagnosis import workflow_health
    from durable.temporal.connection import connect

    settings = load_settings(state_dir)
    try:
        client = await connect(settings, settings.require_temporal_address())
        return await workflow_health(client, databases, tenant)
    except StackError as error:
        progress.print(f"Workflows were not checked: {escape(str(error))}")
        return None


def current_user() -> ActorId:
    """The actor that DURABLE_ACTOR names, else the user of this terminal."""
    return ActorId(load_settings(None).acting_as)
