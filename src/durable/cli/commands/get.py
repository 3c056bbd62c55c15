"""`durable get` and `durable queue`: list resources of the table, by the filters of each."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from durable.cli.connections import with_reader
from durable.cli.input.options import (
    EXAMPLE,
    AsJson,
    Limit,
    RegionOption,
    StateDir,
    TenantOption,
    flag,
    parse_region,
    parse_tenant,
    parse_workload,
    with_options,
)
from durable.cli.render.tables import print_resource
from durable.resources.reader import read_filters
from durable.resources.resource import LIMIT, Resource, Rows
from durable.resources.table import QUEUE, REGIONS, RESOURCES

app = typer.Typer(no_args_is_help=True)

# By filter: its option and default; what is typed, made a value; and the filter's name in the SDK.
_OPTIONS: dict[str, tuple[Any, object]] = {
    "workload": (
        Annotated[
            str | None,
            typer.Argument(
                metavar="TENANT/NAME", help=f"The workload, such as {EXAMPLE}; required."
            ),
        ],
        None,
    ),
    "tenant": (TenantOption, None),
    "region": (RegionOption, None),
    "ended": (Annotated[bool, flag("--all", "--ended", help="Include those that ended.")], False),
    "last": (Annotated[int, typer.Option(min=1, max=1_000, help="How many per region.")], 20),
    "limit": (Limit, LIMIT),
}


def list_resource(
    resource: Resource[Any],
    state_dir: StateDir,
    as_json: bool,
    failure_of: Callable[[Rows[Any]], str | None] | None = None,
    **given: Any,
) -> None:
    """Reads, prints, and fails if there is something wrong with what was read."""
    filters = {name: _parse(resource, name, value) for name, value in given.items()}
    rows = with_reader(state_dir, lambda reader: reader.get(resource, problems=True, **filters))
    failure = None if failure_of is None else failure_of(rows)
    print_resource(resource, rows, read_filters(resource, filters), as_json, failure)


def _parse(resource: Resource[Any], name: str, value: Any) -> Any:
    match name:
        case "tenant":
            return parse_tenant(value)
        case "region":
            return parse_region(value)
        case "workload" if value is None:
            raise typer.BadParameter(
                f"name the workload: `durable get {resource.name} {EXAMPLE}`; `durable get "
                "workloads` lists them",
                param_hint="TENANT/NAME",
            )
        case "workload":
            return parse_workload(value)
        case _:
            return value


def resource_command(resource: Resource[Any], **defaults: object) -> Callable[..., None]:
    """The command that lists a resource, with an option for each of its filters."""

    def command(state_dir: StateDir = None, as_json: AsJson = False, **given: Any) -> None:
        limit = given.pop("last", None)
        given |= {} if limit is None else {"limit": limit}
        list_resource(resource, state_dir, as_json, **given)

    options = {
        name: (option, defaults.get(name, default))
        for name, (option, default) in _OPTIONS.items()
        if name in resource.filters
    }
    options |= {"state_dir": (StateDir, None), "as_json": (AsJson, False)}
    command.__doc__ = resource.sentence
    return with_options(command, options)


def _regions(
    live: Annotated[
        bool, flag("--live", help="Exit with 1 unless every region has a live node.")
    ] = False,
    limit: Limit = LIMIT,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    failure_of = _without_live_node if live else None
    list_resource(REGIONS, state_dir, as_json, failure_of, limit=limit)


def _without_live_node(rows: Rows[Any]) -> str | None:
    dead = [str(row.region) for row in rows if row.nodes and not row.live]
    if dead:
        return f"No node in {', '.join(dead)} has a live lease: check that an agent runs there."
    if rows.unreachable:
        return f"The database of {', '.join(rows.unreachable)} does not answer: check that it runs."
    return None


_regions.__doc__ = REGIONS.sentence

for one in RESOURCES:
    list_one = _regions if one is REGIONS else resource_command(one)
    app.command(one.name)(list_one)
    for alias in filter(None, (one.singular, one.short)):
        app.command(alias, hidden=True)(list_one)

queue = resource_command(QUEUE)
