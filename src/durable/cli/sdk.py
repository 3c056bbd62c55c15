"""How commands reach the control plane: the SDK on these settings, inside one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import typer

from durable.cli.authority import person
from durable.cli.options import load_settings
from durable.client import Durable
from durable.model.ids import TenantId, WorkloadName

T = TypeVar("T")


def with_durable(state_dir: Path | None, work: Callable[[Durable], Awaitable[T]]) -> T:
    """Runs `work` as the person at this terminal, and closes its connections."""
    settings = load_settings(state_dir)

    async def run() -> T:
        async with await Durable.connect(settings, actor=person()) as durable:
            return await work(durable)

    return asyncio.run(run())


def workload_named(text: str) -> tuple[TenantId, WorkloadName]:
    """`TENANT/NAME` as its two names, or a sentence what is wrong with it."""
    tenant, slash, name = text.partition("/")
    if not slash or "/" in name:
        raise typer.BadParameter(f"got {text!r}; write it as TENANT/NAME, like risk/risk-api")
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as TENANT/NAME") from None
