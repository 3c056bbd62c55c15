"""Names on the command line: workloads, tenants and regions, parsed into ids."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from pydantic import ValidationError

from durable.model.ids import RegionId, TenantId, WorkloadName

EXAMPLE = "risk/risk-api"

WorkloadArgument = Annotated[
    str, typer.Argument(metavar="TENANT/NAME", help=f"The workload, such as {EXAMPLE}.")
]
TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]
RegionOption = Annotated[str | None, typer.Option("--region", help="Only this region.")]

Given = TypeVar("Given")
Parsed = TypeVar("Parsed")


def parse_option(option: str, parse: Callable[[Given], Parsed], given: Given) -> Parsed:
    """The parsed value, or a usage error that names the option."""
    try:
        return parse(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(problem, param_hint=option) from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def parse_workload(text: str) -> tuple[TenantId, WorkloadName]:
    """Splits `TENANT/NAME` into its two names."""
    tenant, slash, name = text.partition("/")
    if not slash or "/" in name:
        raise typer.BadParameter(f"got {text!r}; write it as TENANT/NAME, like {EXAMPLE}")
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as TENANT/NAME") from None


def parse_tenant(text: str | None) -> TenantId | None:
    return None if text is None else parse_option("--tenant", TenantId, text)


def parse_region(text: str | None) -> RegionId | None:
    return None if text is None else parse_option("--region", RegionId, text)
