"""Bounded tables of values, whose fields are the columns; and the filters that lists take."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from durable.cli.input.parsing import parsed
from durable.cli.render.output import error_object, print_json, progress, results
from durable.cli.render.tables import print_table
from durable.model.ids import RegionId, TenantId
from durable.model.resources import Resources
from durable.validation.value import Value

Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Region = Annotated[str | None, typer.Option(help="Only of this region.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many rows at most.")]

_ONLY_JSON = frozenset({"slots", "grants", "labels", "taints", "held"})


def show_rows(
    what: str,
    rows: Sequence[Value],
    limit: int,
    as_json: bool,
    remedy: str,
    failure: str | None = None,
    among: str = "",
) -> None:
    """The rows as a table or as one object; `failure` is what is wrong with them, for programs.

    `among` says, in words such as ` of risk`, which rows alone were asked for.
    """
    shown = rows[:limit]
    if as_json:
        listed = {what: [row.model_dump(mode="json") for row in shown], "total": len(rows)}
        print_json({**listed, **error_object("unhealthy", failure)})
        return
    if not rows:
        results.print(f"There are no {what}{among} yet: {remedy}.")
        return
    _print_rows(shown)
    if len(rows) > limit:
        progress.print(f"and {len(rows) - limit:,} more: raise --limit, or name less")


def _print_rows(rows: Sequence[Value]) -> None:
    """Every field is a column, but not one of which no row has anything."""
    columns = [
        name
        for name in type(rows[0]).model_fields
        if name not in _ONLY_JSON and any(getattr(row, name) is not None for row in rows)
    ]
    heads = [name.replace("_", " ").capitalize() for name in columns]
    print_table(heads, [[_cell(getattr(row, name)) for name in columns] for row in rows])


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}Z"
        case Resources() if value.is_zero:
            return "none"
        case _:
            return str(value)


def among(tenant: TenantId | None, region: RegionId | None = None) -> str:
    """The filters of a list in words."""
    of = "" if tenant is None else f" of {tenant}"
    return of if region is None else f"{of} in {region}"


def tenant_named(text: str | None) -> TenantId | None:
    return None if text is None else parsed("--tenant", TenantId, text)


def region_named(text: str | None) -> RegionId | None:
    return None if text is None else parsed("--region", RegionId, text)
