"""The filters that lists take, and how sentences name them."""

from typing import Annotated

import typer

from durable.cli.input.parsing import parsed
from durable.model.ids import RegionId, TenantId

Tenant = Annotated[str | None, typer.Option(help="Only this tenant.")]
Region = Annotated[str | None, typer.Option(help="Only this region.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many rows at most.")]


def tenant_named(text: str | None) -> TenantId | None:
    return None if text is None else parsed("--tenant", TenantId, text)


def region_named(text: str | None) -> RegionId | None:
    return None if text is None else parsed("--region", RegionId, text)


def scope_of(tenant: TenantId | None, region: RegionId | None = None) -> str:
    """` of risk in eu-west`: what the filters leave."""
    of = "" if tenant is None else f" of {tenant}"
    return of if region is None else f"{of} in {region}"
