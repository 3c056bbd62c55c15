"""`durable get`: what there is, in bounded lists."""

import typer

from durable.cli.commands.get_fleet import nodes, regions, tenants
from durable.cli.commands.get_workloads import decisions, placements, workloads

app = typer.Typer(no_args_is_help=True, help="What there is: workloads, placements, nodes, ...")
for _list in (workloads, placements, nodes, tenants, regions, decisions):
    app.command()(_list)
