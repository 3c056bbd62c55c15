"""The list of subcommands; only the one that was asked for is imported."""

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand is, and what the list of all says of it without importing it."""

    module: str
    # Of a group of commands the Typer app, of a single one its function.
    attribute: str
    sentence: str

    def add_to(self, app: typer.Typer, name: str) -> None:
        found = getattr(import_module(f"durable.cli.commands.{self.module}"), self.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


SUBCOMMANDS = {
    "up": Subcommand(
        "stack", "up", "Start the servers, the workers and simulated nodes, and keep them running."
    ),
    "down": Subcommand("stack", "down", "Stop the stack and wait until everything is gone."),
    "status": Subcommand(
        "stack", "status", "Show each part and whether it answers; exit code 1 unless all do."
    ),
    "demo": Subcommand(
        "demo",
        "demo",
        "Start a stack, load a fleet, run five workloads, explain one, check every invariant.",
    ),
    "migrate": Subcommand(
        "migrate", "migrate", "Migrate every database of the settings; again changes nothing."
    ),
    "doctor": Subcommand(
        "doctor",
        "doctor",
        "Recompute every invariant from the claims; exit code 1 if one does not hold.",
    ),
    "apply": Subcommand(
        "apply",
        "apply",
        "Set the desired state of workloads, and show them on their way until all serve.",
    ),
    "scale": Subcommand("workloads", "scale", "Another number of replicas; everything else stays."),
    "delete": Subcommand(
        "workloads",
        "delete",
        "Stop and release everything of a workload, and wait until it is gone.",
    ),
    "plan": Subcommand(
        "plan",
        "plan",
        "Show what an apply would do now; each workload is planned on what those before it leave.",
    ),
    "explain": Subcommand(
        "explain",
        "explain_workload",
        "Tell where a workload is, how that was decided, and who moves it next.",
    ),
    "queue": Subcommand(
        "queue",
        "queue",
        "Who waits for a place, in the order in which they are served, and what for.",
    ),
    "logs": Subcommand(
        "logs",
        "logs",
        "Show what a replica wrote; simulated nodes run nothing and so have no logs.",
    ),
    "send": Subcommand(
        "send", "send", "Hold, resume, retry or evict placements; each of them answers."
    ),
    "worker": Subcommand(
        "worker",
        "worker",
        "Serve workflows and their activities; SIGTERM and SIGINT let what has begun end first.",
    ),
    "agent": Subcommand(
        "agent",
        "agent",
        "Host nodes: start and stop what is bound to them, and report what is seen.",
    ),
    "get": Subcommand("get", "app", "What there is: workloads, placements, nodes, ..."),
    "fleet": Subcommand("fleet", "app", "The regions, nodes and tenants there are."),
    "audit": Subcommand("audit", "app", "The hash-chained record of who changed what."),
}


def app_for(arguments: list[str]) -> typer.Typer:
    """The `durable` command, in which only the subcommand that the arguments name can be run."""
    # The options before a subcommand take no values, so the first plain word is its name.
    named = next((word for word in arguments if not word.startswith("-")), None)
    app = typer.Typer(no_args_is_help=True, add_completion=False, callback=_main)
    for name, subcommand in SUBCOMMANDS.items():
        if name == named:
            subcommand.add_to(app, name)
        else:
            app.command(name, help=subcommand.sentence)(_only_listed)
    return app


def _only_listed() -> None:
    raise AssertionError("a subcommand that was not named was run")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"durable {version('durable')}")
        raise typer.Exit


def _main(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """A scheduler control plane whose every placement is a durable execution."""
    if debug:
        os.environ["DURABLE_DEBUG"] = "1"
