"""`durable demo`: starts a stack of its own, shows what it can do so far, and stops it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from durable.authority.census import take_census
from durable.authority.invariants import violations_everywhere
from durable.cli.authority import with_authority
from durable.cli.fleet import load_fleets, print_census
from durable.cli.manifest import load_manifest
from durable.cli.options import AsJson, StateDir, load_settings
from durable.cli.output import Steps, print_json, progress, results
from durable.cli.stack import show_event
from durable.embedded.detached import start_detached
from durable.embedded.shutdown import stop_stack
from durable.model.fleet import Fleet
from durable.stack_record import StackError

OWN_STATE_DIR = Path(".durable/demo")

File = Annotated[Path, typer.Option("--file", "-f", help="The fleet to show.")]


def demo(
    file: File = Path("examples/fleet.yaml"),
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Start a stack, load a fleet, show it, check every promise, and stop."""
    fleets = load_manifest(file, Fleet)
    settings = load_settings(state_dir)
    if settings.database_url or settings.temporal_address:
        raise StackError(
            "The demo loads a fleet of its own and must not do so into yours: unset "
            "DURABLE_DATABASE_URL and DURABLE_TEMPORAL_ADDRESS first."
        )
    named = state_dir is not None or os.environ.get("DURABLE_STATE_DIR", "").strip()
    place = settings.state_dir if named else OWN_STATE_DIR
    with Steps() as steps:
        start_detached(place, lambda event: show_event(steps, event))
        try:
            _show(fleets, place, as_json)
        finally:
            stopped = stop_stack(place)
            progress.print(f"[green]✓[/] Stopped {', '.join(stopped)}")


def _show(fleets: list[Fleet], place: Path, as_json: bool) -> None:
    load_fleets(fleets, place)
    census = with_authority(place, take_census)
    broken = with_authority(place, violations_everywhere)
    if as_json:
        print_json({"fleet": census.model_dump(mode="json"), "promises_hold": not broken})
    else:
        print_census(census)
        results.print(
            "Every promise of the authority holds."
            if not broken
            else f"[red]{len(broken)} promises do not hold: see durable promises.[/]"
        )
        results.print("\nTo keep a stack with Temporal's UI: .venv/bin/durable up --detach\n")
    if broken:
        raise typer.Exit(1)
