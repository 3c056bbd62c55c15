"""`durable drill`: rehearses a runbook on a stack and checks it; ends with 1 if it does not hold.

On a stack that runs it uses what runs there and leaves it as it was. Otherwise it starts one with
the examples, and stops it afterwards.
"""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from durable.cli.commands.apply import apply_all
from durable.cli.commands.demo import start_examples
from durable.cli.commands.stack import show_event
from durable.cli.connections import with_durable
from durable.cli.input.manifests import load_manifest, load_workloads
from durable.cli.input.options import AsJson, flag, load_settings, state_dir_option
from durable.cli.render.output import Steps, error_object, fail, print_json, progress
from durable.cli.render.recoveries import RecoveryLines
from durable.cli.render.workloads import failure_of
from durable.client import Durable
from durable.drills.as_found import rehearse
from durable.drills.drill import Drill, Expectation
from durable.drills.registry import DRILLS
from durable.drills.world import World
from durable.model.fleet.manifest import Fleet
from durable.model.work.workload import WorkloadManifest
from durable.stack.detached import start_detached
from durable.stack.shutdown import stop_stack
from durable.state_dir.record import StackError, is_running

OWN_STATE_DIR = Path(".durable/drill")
WAIT_SECONDS = 120.0

_HELP = "\n\n".join(f"{drill.name}: {drill.sentence}" for drill in DRILLS.values())


def drill(
    name: Annotated[str, typer.Argument(metavar="|".join(DRILLS), help=_HELP)],
    file: Annotated[Path, typer.Option("--file", "-f", help="The fleet to load.")] = Path(
        "examples/fleet.yaml"
    ),
    workloads: Annotated[Path, typer.Option("--workloads", "-w", help="What to run.")] = Path(
        "examples/workloads"
    ),
    keep: Annotated[bool, flag("--keep", help="Leave the stack running.")] = False,
    state_dir: Annotated[Path | None, state_dir_option(str(OWN_STATE_DIR))] = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse what a runbook says, on the stack that runs here or on one of its own."""
    chosen = DRILLS.get(name)
    if chosen is None:
        raise typer.BadParameter(
            f"there is no drill {name!r}; allowed: {', '.join(DRILLS)}", param_hint="NAME"
        )
    fleets, manifests = load_manifest(file, Fleet), load_workloads([workloads])
    settings = load_settings(state_dir)
    if settings.database_url or settings.temporal_address:
        raise StackError(
            "A drill changes what runs and must not do so on your servers: unset "
            "DURABLE_DATABASE_URL and DURABLE_TEMPORAL_ADDRESS first."
        )
    is_given = state_dir is not None or os.environ.get("DURABLE_STATE_DIR", "").strip()
    directory = settings.state_dir if is_given else OWN_STATE_DIR
    if is_running(directory):
        progress.print(f"Using the stack that runs in {escape(str(directory))}")
        seen = _rehearse(chosen, directory, stays=True)
    else:
        seen = _rehearse_on_examples(chosen, fleets, manifests, directory, keep)
    _conclude(chosen, seen, as_json)


def _rehearse_on_examples(
    drill: Drill,
    fleets: list[Fleet],
    manifests: list[WorkloadManifest],
    directory: Path,
    keep: bool,
) -> list[Expectation]:
    with Steps() as steps:
        start_detached(directory, lambda event: show_event(steps, event))
        try:
            start_examples(fleets, directory)
            applied = apply_all(
                manifests,
                timeout_seconds=WAIT_SECONDS,
                request_id=None,
                reason=f"durable drill {drill.name}",
                state_dir=directory,
            )
            if (failure := failure_of(applied)) is not None:
                fail(failure)
            return _rehearse(drill, directory, stays=keep)
        finally:
            if not keep:
                stop_stack(directory)


def _rehearse(drill: Drill, directory: Path, *, stays: bool) -> list[Expectation]:
    lines = RecoveryLines()

    async def use(durable: Durable) -> list[Expectation]:
        world = World(durable, directory, progress.print, lines.show)
        return await rehearse(drill, world, stays=stays, show=_show)

    return with_durable(directory, use)


def _show(one: Expectation) -> None:
    mark = "[green]✓[/]" if one.met else "[red]✗[/]"
    progress.print(f"{mark} {escape(str(one))}")


def _conclude(drill: Drill, seen: list[Expectation], as_json: bool) -> None:
    missed = [one for one in seen if not one.met]
    failure = None
    if missed or not seen:
        first = missed[0].what if missed else "nothing was rehearsed"
        failure = f"The drill {drill.name} failed: {first}; see {drill.runbook}."
    if as_json:
        rows = [one.model_dump(mode="json") for one in seen]
        print_json({"drill": drill.name, "expectations": rows, **error_object("failed", failure)})
    if failure is not None:
        fail(failure)
