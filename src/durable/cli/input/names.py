"""The name of a workload on the command line."""

from typing import Annotated

import typer

from durable.model.ids import TenantId, WorkloadName

EXAMPLE = "risk/risk-api"

Name = Annotated[
    str, typer.Argument(metavar="TENANT/NAME", help=f"The workload, such as {EXAMPLE}.")
]


def workload_named(text: str) -> tuple[TenantId, WorkloadName]:
    """`TENANT/NAME` as its two names, or a sentence what is wrong with it."""
    tenant, slash, name = text.partition("/")
    if not slash or "/" in name:
        raise typer.BadParameter(f"got {text!r}; write it as TENANT/NAME, like {EXAMPLE}")
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as TENANT/NAME") from None
