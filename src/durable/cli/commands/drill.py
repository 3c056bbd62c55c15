"""`durable drill`: rehearses a runbook on a stack and checks it; ends with 1 if it does not hold.

On a stack that runs it uses what runs there and leaves it as it was. Otherwise it starts one with
the examples, and stops it afterwards.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from durable.cli.commands.demo import (
    File,
    Keep,
    Workloads,
    apply_examples,
    example_stack,
    own_directory,
)
from durable.cli.connections import with_durable
from durable.cli.input.manifests import load_manifest, load_workloads
from durable.cli.input.options import AsJson, state_dir_option
from durable.cli.render.following import ChangedLines
from durable.cli.render.output import error_object, fail, print_json, progress
from durable.cli.render.workloads import failure_of
from durable.client import Durable
from durable.drills.drill import Drill, Expectation
from durable.drills.registry import DRILLS
from durable.drills.rehearsal import rehearse
from durable.drills.world import World
from durable.model.fleet.manifest import Fleet
from durable.model.work.workload import WorkloadManifest
from durable.reports.recovery import summary_of_recovery
from durable.state_dir.record import is_running

OWN_STATE_DIR = Path(".durable/drill")

_HELP = "\n\n".join(f"{drill.name}: {drill.sentence}" for drill in DRILLS.values())


def drill(
    name: Annotated[str, typer.Argument(metavar="|".join(DRILLS), help=_HELP)],
    file: File = Path("examples/fleet.yaml"),
    workloads: Workloads = Path("examples/workloads"),
    keep: Keep = False,
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
    directory = own_directory(state_dir, OWN_STATE_DIR, "A drill")
    if is_running(directory):
        progress.print(f"Using the stack that runs in {escape(str(directory))}")
        expectations = _rehearse(chosen, directory, stays=True)
    else:
        with example_stack(fleets, directory, keep=keep):
            _apply(chosen, manifests, directory)
            expectations = _rehearse(chosen, directory, stays=keep)
    _conclude(chosen, expectations, as_json)


def _apply(drill: Drill, manifests: list[WorkloadManifest], directory: Path) -> None:
    reason = f"durable drill {drill.name}"
    applied = with_durable(directory, lambda durable: apply_examples(durable, manifests, reason))
    if (failure := failure_of(applied)) is not None:
        fail(failure)


def _rehearse(drill: Drill, directory: Path, *, stays: bool) -> list[Expectation]:
    lines = ChangedLines()

    async def use(durable: Durable) -> list[Expectation]:
        world = World(
            durable, directory, progress.print, lambda now: lines.show(summary_of_recovery(now))
        )
        return await rehearse(drill, world, stays=stays, show=_show)

    return with_durable(directory, use)


def _show(expectation: Expectation) -> None:
    mark = "[green]✓[/]" if expectation.met else "[red]✗[/]"
    progress.print(f"{mark} {escape(str(expectation))}")


def _conclude(drill: Drill, expectations: list[Expectation], as_json: bool) -> None:
    missed = [each for each in expectations if not each.met]
    failure = None
    if missed or not expectations:
        first = missed[0].what if missed else "nothing was rehearsed"
        failure = f"The drill {drill.name} failed: {first}; see {drill.runbook}."
    if as_json:
        rows = [each.model_dump(mode="json") for each in expectations]
        print_json({"drill": drill.name, "expectations": rows, **error_object("failed", failure)})
    if failure is not None:
        fail(failure)
