"""Bounded tables of values, whose fields are the columns; and the filters that lists take."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from durable.cli.output import print_json, progress, results
from durable.cli.parsing import parsed
from durable.model.ids import RegionId, TenantId
from durable.model.value import Value

Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Region = Annotated[str | None, typer.Option(help="Only of this region.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many rows at most.")]


def show_rows(what: str, rows: Sequence[Value], limit: int, as_json: bool, remedy: str) -> None:
    shown = rows[:limit]
    if as_json:
        print_json({what: [row.model_dump(mode="json") for row in shown], "total": len(rows)})
        return
    if not rows:
        results.print(f"There are no {what} yet: {remedy}.")
        return
    columns = [name for name in type(rows[0]).model_fields if name not in _ONLY_JSON]
    heads = (name.replace("_", " ").capitalize() for name in columns)
    table = Table(*heads, box=box.SIMPLE)
    for row in shown:
        table.add_row(*(escape(_cell(getattr(row, name))) for name in columns))
    results.print(table)
    if len(rows) > limit:
        progress.print(f"and {len(rows) - limit:,} more: raise --limit, or name less")


_ONLY_JSON = frozenset({"slots", "grants", "labels", "taints"})


def _cell(value: object) -> str:
    return (
        "" if value is None else "yes" if value is True else "no" if value is False else str(value)
    )


def tenant_named(text: str | None) -> TenantId | None:
    return None if text is None else parsed("--tenant", TenantId, text)


def region_named(text: str | None) -> RegionId | None:
    return None if text is None else parsed("--region", RegionId, text)
